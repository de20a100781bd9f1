package controller

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/openpathways/openpathways/operator/internal/jobset"
)

type discardEvents struct{}

func (discardEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func worker() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "ns", Labels: map[string]string{jobsetv1.ReplicatedJobNameKey: jobset.WorkersJob}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "pathways-worker", Image: "image:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("2Gi")}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func terminated(code int32, reason string, ago time.Duration) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(noon.Add(-ago))}
}

func TestPodProblem(t *testing.T) {
	container := func(status corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			status.Name = "pathways-worker"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
		}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "so it says"}}
	}
	unschedulable := func(message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
		}
	}
	for name, test := range map[string]struct {
		edit   func(*corev1.Pod)
		reason string
		words  string
	}{
		"healthy":     {func(*corev1.Pod) {}, "", ""},
		"creating":    {container(corev1.ContainerStatus{State: waiting("ContainerCreating")}), "", ""},
		"image":       {container(corev1.ContainerStatus{State: waiting("ErrImagePull")}), "ImagePullFailed", "image:1"},
		"image never": {container(corev1.ContainerStatus{State: waiting("ErrImageNeverPull")}), "ImagePullFailed", "--image-repository"},
		"user's image": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waiting("ErrImagePull")}}
		}, "ImagePullFailed", "controller.template"},
		"configuration":      {container(corev1.ContainerStatus{State: waiting("CreateContainerConfigError")}), "ContainerCannotStart", "so it says"},
		"node too small":     {unschedulable("0/1 nodes are available: 1 Insufficient cpu."), "Unschedulable", "1.500 CPUs and 2048 MiB"},
		"no such node":       {unschedulable("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), "Unschedulable", "cloud.google.com/gke-tpu-topology=2x2x2"},
		"taints":             {unschedulable("0/1 nodes are available: 1 node(s) had untolerated taint {a: b}."), "Unschedulable", "taints"},
		"exclusive":          {unschedulable("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."), "Unschedulable", "no other job uses"},
		"another reason":     {unschedulable("no nodes"), "Unschedulable", "kubectl describe pod -n ns w"},
		"crashing":           {container(corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), RestartCount: 4, LastTerminationState: corev1.ContainerState{Terminated: terminated(1, "Error", time.Minute)}}), "CrashLoopBackOff", "kubectl logs -n ns w -c pathways-worker --previous"},
		"crashed, back":      {container(corev1.ContainerStatus{Ready: true, RestartCount: 4, LastTerminationState: corev1.ContainerState{Terminated: terminated(1, "Error", time.Minute)}}), "", ""},
		"crashed, not yet":   {container(corev1.ContainerStatus{RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: terminated(1, "Error", time.Minute)}}), "CrashLoopBackOff", "exit code 1"},
		"out of memory":      {container(corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: terminated(137, "OOMKilled", time.Hour)}}), "OutOfMemory", "limits.memory"},
		"out of memory just": {container(corev1.ContainerStatus{Ready: true, RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: terminated(137, "OOMKilled", time.Minute)}}), "OutOfMemory", "1 restarts"},
		"out of memory once": {container(corev1.ContainerStatus{Ready: true, RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: terminated(137, "OOMKilled", time.Hour)}}), "", ""},
		"evicted": {func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}
		}, "PodFailed", "low on memory"},
		"failed": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "", ""},
		"exited": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "ServerExited", "not meant to end"},
		"user's program done": {func(p *corev1.Pod) {
			p.Labels[jobsetv1.ReplicatedJobNameKey] = jobset.HeadJob
			p.Spec.InitContainers = []corev1.Container{{Name: "pathways-rm"}}
			p.Status.Phase = corev1.PodSucceeded
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := worker()
			pod.Spec.NodeSelector = map[string]string{"cloud.google.com/gke-tpu-topology": "2x2x2"}
			test.edit(pod)
			found := podProblem(pod, noon)
			if test.reason == "" {
				if found != nil {
					t.Error("unexpected:", *found)
				}
			} else if found == nil || found.reason != test.reason || !strings.Contains(found.message, test.words) {
				t.Errorf("want %s with %q, got %+v", test.reason, test.words, found)
			}
		})
	}
}

func TestTheWorstProblemIsTold(t *testing.T) {
	crashing, image := worker(), worker()
	crashing.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "pathways-worker", RestartCount: 1,
		LastTerminationState: corev1.ContainerState{Terminated: terminated(1, "Error", 0)}}}
	image.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "pathways-worker",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
	found := podsProblem([]corev1.Pod{*crashing, *image, *crashing, *image}, noon)
	if found == nil || found.reason != "ImagePullFailed" || !strings.Contains(found.message, "the same with 1 more pods") {
		t.Errorf("%+v", found)
	}
}

func TestRestartReason(t *testing.T) {
	job := func(succeeded, failed int32, conditions ...batchv1.JobConditionType) *batchv1.Job {
		j := &batchv1.Job{Spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, Status: batchv1.JobStatus{Succeeded: succeeded, Failed: failed}}
		for _, c := range conditions {
			j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
		}
		return j
	}
	for name, test := range map[string]struct {
		job     *batchv1.Job
		pods    int32
		elastic bool
		want    string
	}{
		"all there":                     {job(0, 5), 2, false, ""},
		"first loss":                    {job(0, 0), 1, false, ""},
		"a later loss":                  {job(0, 1), 1, false, "1 of its 2 workers are lost"},
		"a later loss, but counted":     {job(0, 1), 1, true, ""},
		"ended":                         {job(1, 0), 1, false, "ended with exit code 0"},
		"ended, elastic":                {job(1, 0), 1, true, "ended with exit code 0"},
		"all ended":                     {job(2, 0, batchv1.JobComplete), 0, false, "ended with exit code 0"},
		"failed: the policy's business": {job(1, 9, batchv1.JobFailed), 0, false, ""},
	} {
		if got := restartReason(test.job, test.pods, test.elastic); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
