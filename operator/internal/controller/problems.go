package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/openpathways/openpathways/operator/internal/jobset"
)

const completionIndexLabel = batchv1.JobCompletionIndexAnnotation // the Job controller sets it as a label too

// severity orders reasons: what has to be mended first comes first.
var severity = []string{reasonImagePull, reasonCannotStart, reasonUnschedulable, reasonOutOfMemory, reasonCrashLoop,
	reasonEvicted, reasonExited}

// podsProblem is the worst problem of the pods, nil if there is none.
func podsProblem(pods []corev1.Pod, now time.Time) *problem {
	var worst *problem
	same := 0
	for i := range pods {
		found := podProblem(&pods[i], now)
		switch {
		case found == nil:
		case worst == nil || slices.Index(severity, found.reason) < slices.Index(severity, worst.reason):
			worst, same = found, 0
		case found.reason == worst.reason:
			same++
		}
	}
	if same > 0 {
		worst.message += fmt.Sprintf(" (the same with %d more pods)", same)
	}
	return worst
}

func podProblem(pod *corev1.Pod, now time.Time) *problem {
	server := pod.Labels[jobsetv1.ReplicatedJobNameKey] == jobset.WorkersJob || len(pod.Spec.InitContainers) == 0
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		if server {
			return &problem{reasonExited, fmt.Sprintf("pod %s has ended with success, but servers are not meant to end, so "+
				"Kubernetes does not start it again: delete the PathwaysJob and create it anew; its log says why it ended: "+
				"kubectl logs -n %s %s", pod.Name, pod.Namespace, pod.Name)}
		}
		return nil
	case corev1.PodFailed:
		if pod.Status.Reason != "" { // Evicted, OutOfcpu, UnexpectedAdmissionError, ...: the node's decision
			return &problem{reasonEvicted, fmt.Sprintf("pod %s was ended by its node %s (%s): %s; if it happens again, give the "+
				"component other resources (customComponents[].resources) or the cluster larger nodes", pod.Name,
				pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)}
		}
		return nil // the Job's and JobSet's policies have to say what follows
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
			condition.Reason == corev1.PodReasonUnschedulable {
			return &problem{reasonUnschedulable, fmt.Sprintf("no node can take pod %s: %s; %s", pod.Name, condition.Message,
				scheduleAdvice(pod, condition.Message))}
		}
	}
	var worst *problem
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		found := containerProblem(pod, &status, now)
		if found != nil && (worst == nil || slices.Index(severity, found.reason) < slices.Index(severity, worst.reason)) {
			worst = found
		}
	}
	return worst
}

func scheduleAdvice(pod *corev1.Pod, message string) string {
	var advice []string
	if strings.Contains(message, "Insufficient google.com/tpu") || strings.Contains(message, "node affinity/selector") {
		var selectors []string
		for key, value := range pod.Spec.NodeSelector {
			selectors = append(selectors, key+"="+value)
		}
		slices.Sort(selectors)
		if len(selectors) > 0 {
			advice = append(advice, "it needs nodes with "+strings.Join(selectors, ", ")+
				": add a node pool of that machine type and topology, or set workers[].nodeKind: cpu for emulated chips")
		}
	}
	if strings.Contains(message, "Insufficient cpu") || strings.Contains(message, "Insufficient memory") {
		advice = append(advice, "the nodes are too small or too full: it requests "+requestsOf(pod)+
			"; add nodes, or lower customComponents[].resources")
	}
	if strings.Contains(message, "taint") {
		advice = append(advice, "some nodes have taints that it does not tolerate: remove them or add other nodes")
	}
	if strings.Contains(message, "anti-affinity") || strings.Contains(message, "pod affinity") {
		advice = append(advice, "each slice, and the head, needs a node pool or node that no other job uses: add nodes or "+
			"delete another job")
	}
	if len(advice) == 0 {
		advice = append(advice, "see kubectl describe pod -n "+pod.Namespace+" "+pod.Name)
	}
	return strings.Join(advice, "; ")
}

func requestsOf(pod *corev1.Pod) string {
	cpu, memory := int64(0), int64(0)
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		cpu += container.Resources.Requests.Cpu().MilliValue()
		memory += container.Resources.Requests.Memory().Value()
	}
	return fmt.Sprintf("%d.%03d CPUs and %d MiB of memory", cpu/1000, cpu%1000, memory>>20)
}

// imageSource says where the user can change the image of a container.
func imageSource(container string) string {
	switch container {
	case jobset.RMContainer, jobset.ProxyContainer, jobset.WorkerContainer:
		return "the operator's --image-repository and spec.pathwaysVersion, or from customComponents[].image"
	case jobset.SidecarName:
		return "customComponents[].image"
	default:
		return "controller.template"
	}
}

func containerProblem(pod *corev1.Pod, status *corev1.ContainerStatus, now time.Time) *problem {
	where := fmt.Sprintf("container %s of pod %s", status.Name, pod.Name)
	if waiting := status.State.Waiting; waiting != nil {
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
			"RegistryUnavailable", "SignatureValidationFailed":
			return &problem{reasonImagePull, fmt.Sprintf("the image %s of %s cannot be pulled (%s: %s): check that it exists and "+
				"that the node may pull it; its name comes from %s", imageOf(pod, status.Name), where, waiting.Reason,
				waiting.Message, imageSource(status.Name))}
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
			"PostStartHookError":
			return &problem{reasonCannotStart, fmt.Sprintf("%s cannot be started (%s: %s): see kubectl describe pod -n %s %s",
				where, waiting.Reason, waiting.Message, pod.Namespace, pod.Name)}
		}
	}
	last := status.LastTerminationState.Terminated
	if last == nil {
		last = status.State.Terminated
	}
	if last == nil || last.ExitCode == 0 {
		return nil
	}
	since := now.Sub(last.FinishedAt.Time)
	if last.Reason == "OOMKilled" && (!status.Ready || since < oomRemembered) {
		return &problem{reasonOutOfMemory, fmt.Sprintf("%s was ended for using more memory than its limit or its node has, %d "+
			"restarts so far: raise customComponents[].resources.limits.memory (or the template's), or use larger nodes",
			where, status.RestartCount)}
	}
	backingOff := status.State.Waiting != nil && status.State.Waiting.Reason == "CrashLoopBackOff"
	if backingOff || status.RestartCount > 0 && !status.Ready && since < crashRemembered {
		return &problem{reasonCrashLoop, fmt.Sprintf("%s ended with exit code %d (%s), %d restarts so far: its log says why: "+
			"kubectl logs -n %s %s -c %s --previous", where, last.ExitCode, last.Reason, status.RestartCount, pod.Namespace,
			pod.Name, status.Name)}
	}
	return nil
}

func imageOf(pod *corev1.Pod, container string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container {
			return c.Image
		}
	}
	return "?"
}
