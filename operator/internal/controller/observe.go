package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/jobset"
)

// Reasons of conditions that are not JobSet's own.
const (
	reasonAsExpected     = "AsExpected"
	reasonWaiting        = "WaitingForPods"
	reasonStarting       = "JobSetCreated"
	reasonRestarting     = "Restarting"
	reasonRunning        = "AllSlicesStarted"
	reasonNotRunning     = "NotRunning"
	reasonSlicesReady    = "AllSlicesReady"
	reasonSlicesNotReady = "SlicesNotReady"
	reasonSuspended      = "SuspendedJobs"
	reasonNotSuspended   = "NotSuspended"
	reasonNotFinished    = "NotFinished"
	reasonFinished       = "Finished"
	reasonJobSetMissing  = "JobSetNotInstalled"
	reasonJobSetTooOld   = "JobSetTooOld"
	reasonJobSetIdle     = "JobSetControllerNotRunning"
	reasonNameConflict   = "NameConflict"
	reasonInvalidSpec    = "InvalidSpec"
	reasonCreationFailed = "JobSetCreationFailed"
	reasonPodsNotCreated = "PodsNotCreated"
	reasonLeftovers      = "WaitingForDeletion"
	reasonImagePull      = "ImagePullFailed"
	reasonUnschedulable  = "Unschedulable"
	reasonCannotStart    = "ContainerCannotStart"
	reasonOutOfMemory    = "OutOfMemory"
	reasonCrashLooping   = "CrashLooping"
	reasonEvicted        = "PodFailed"
	reasonExited         = "ServerExited"
	reasonHeadNotReady   = "HeadNotReady"
	oomRemembered        = 5 * time.Minute
	crashRemembered      = 10 * time.Minute
	patienceForJobSet    = 30 * time.Second // until the JobSet controller is taken for absent
	patienceForMissing   = time.Minute      // until pods that are missing without a reason are one
	patienceForPods      = 15 * time.Second // until pods that do not appear are a problem
	maxMessage           = 1000             // an event's limit is 1024
	maxHostsNamed        = 3
)

// problem is one thing that keeps the cluster from working, in words that say what to do about it.
type problem struct {
	reason  string
	message string
}

// observation is all that a status is made of.
type observation struct {
	job     *v1.PathwaysJob
	jobSet  *jobsetv1.JobSet // nil: there is none of ours
	pods    []corev1.Pod     // of this JobSet
	problem *problem         // found before or instead of the pods'
	waiting string           // if there is no JobSet: what for
	now     time.Time
}

// status derives the whole status anew; the old one is only asked when a condition has last changed, and whether the
// slices have all been ready before.
func (o *observation) status() v1.PathwaysJobStatus {
	status := *o.job.Status.DeepCopy()
	status.ObservedGeneration = o.job.Generation
	desired := int32(0)
	if len(o.job.Spec.Workers) > 0 {
		desired = o.job.Spec.Workers[0].NumSlices
	}
	pods := o.currentPods()
	hosts := jobset.Hosts(o.job)
	ready := readySlices(pods, desired, hosts)
	head := headReady(pods)

	state := phase{kind: v1.ConditionPending, reason: reasonStarting, message: "pathwaysJob pending : jobSet is getting created"}
	switch {
	case o.jobSet == nil:
		if o.waiting != "" {
			state.message = "pathwaysJob pending : " + o.waiting
		}
		if o.problem != nil {
			state.reason, state.message = o.problem.reason, "pathwaysJob pending : "+o.problem.message
		}
	case jobSetCondition(o.jobSet, string(jobsetv1.JobSetCompleted)) != nil:
		c := jobSetCondition(o.jobSet, string(jobsetv1.JobSetCompleted))
		state = phase{v1.ConditionCompleted, c.Reason, "pathwaysJob completed: " + c.Message}
	case jobSetCondition(o.jobSet, string(jobsetv1.JobSetFailed)) != nil:
		c := jobSetCondition(o.jobSet, string(jobsetv1.JobSetFailed))
		state = phase{v1.ConditionFailed, c.Reason, "pathwaysJob failed: " + c.Message + o.exitCodes()}
	case ptr.Deref(o.jobSet.Spec.Suspend, false):
		state = phase{v1.ConditionSuspended, reasonSuspended, "pathwaysJob suspended: jobset is suspended"}
	case head && (ready == desired || o.ranBefore()):
		state = phase{v1.ConditionRunning, reasonRunning, "pathwaysJob running: jobSet is running"}
	case o.jobSet.Status.Restarts > 0:
		state.reason = reasonRestarting
		state.message = fmt.Sprintf("pathwaysJob pending : restart %d of at most %d; %s", o.jobSet.Status.Restarts,
			o.job.Spec.MaxRestarts, o.waitingFor(head, ready, desired))
	case head || len(pods) > 0:
		state.reason, state.message = reasonWaiting, "pathwaysJob pending : "+o.waitingFor(head, ready, desired)
	}

	if o.jobSet != nil {
		status.Restarts = o.jobSet.Status.Restarts
	}
	finished := state.kind == v1.ConditionCompleted || state.kind == v1.ConditionFailed
	status.TerminalState = ""
	if finished {
		status.TerminalState = state.kind
	}
	status.SlicesReady, status.SlicesDesired = ready, desired
	status.Slices = fmt.Sprintf("%d/%d", ready, desired)
	status.Address = ""
	if o.jobSet != nil && !finished && state.kind != v1.ConditionSuspended {
		status.Address = jobset.Address(o.job)
	}

	set := func(kind string, value bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message),
			ObservedGeneration: o.job.Generation, LastTransitionTime: metav1.NewTime(o.now)}
		if value {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	for _, other := range []struct{ kind, reason, message string }{
		{v1.ConditionPending, reasonNotRunning, "not pending"},
		{v1.ConditionRunning, reasonNotRunning, "not running"},
		{v1.ConditionSuspended, reasonNotSuspended, "not suspended"},
		{v1.ConditionCompleted, reasonNotFinished, "not completed"},
		{v1.ConditionFailed, reasonNotFinished, "not failed"},
	} {
		if other.kind == state.kind {
			set(state.kind, true, state.reason, state.message)
		} else {
			set(other.kind, false, other.reason, other.message)
		}
	}

	count := fmt.Sprintf("%d of %d slices ready", ready, desired)
	switch {
	case finished:
		set(v1.ConditionSlicesReady, false, reasonFinished, "the job has ended")
	case ready == desired:
		set(v1.ConditionSlicesReady, true, reasonSlicesReady, count)
	default:
		set(v1.ConditionSlicesReady, false, reasonSlicesNotReady, count+o.unready(pods, desired, hosts))
	}

	found := o.problem
	if found == nil && o.jobSet != nil && !finished {
		found = podsProblem(pods, o.now)
	}
	switch {
	case finished:
		set(v1.ConditionDegraded, false, reasonFinished, "the job has ended")
	case found != nil:
		set(v1.ConditionDegraded, true, found.reason, found.message)
	default:
		set(v1.ConditionDegraded, false, reasonAsExpected, "no problem is known")
	}
	return status
}

// phase is the one condition of Pending, Running, Suspended, Completed and Failed that is True.
type phase struct{ kind, reason, message string }

func jobSetCondition(js *jobsetv1.JobSet, kind string) *metav1.Condition {
	condition := meta.FindStatusCondition(js.Status.Conditions, kind)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	return condition
}

// currentPods are those of the JobSet's current run that are not on their way out, in the order of their names.
func (o *observation) currentPods() []corev1.Pod {
	if o.jobSet == nil {
		return nil
	}
	attempt := strconv.Itoa(int(o.jobSet.Status.Restarts))
	var pods []corev1.Pod
	for _, pod := range o.pods {
		if pod.DeletionTimestamp == nil && pod.Labels[jobset.RestartAttemptLabel] == attempt {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// ranBefore: in this run of the JobSet, all slices have been ready once. A slice that is lost later is replaced while
// the others go on, so the job as a whole keeps running.
func (o *observation) ranBefore() bool {
	return meta.IsStatusConditionTrue(o.job.Status.Conditions, v1.ConditionRunning) &&
		o.job.Status.Restarts == o.jobSet.Status.Restarts
}

func (o *observation) waitingFor(head bool, ready, desired int32) string {
	if !head {
		return "the head is not ready yet"
	}
	return fmt.Sprintf("%d of %d slices ready", ready, desired)
}

// unready names the first few hosts that are missing, as "; not ready: slice 1 host 0 (pod … is Pending)".
func (o *observation) unready(pods []corev1.Pod, slices, hosts int32) string {
	type place struct{ slice, host string }
	podAt := map[place]*corev1.Pod{}
	for i := range pods {
		if pods[i].Labels[jobsetv1.ReplicatedJobNameKey] == jobset.WorkersJob {
			podAt[place{pods[i].Labels[jobsetv1.JobIndexKey], pods[i].Labels[completionIndexLabel]}] = &pods[i]
		}
	}
	var names []string
	more := 0
	for slice := range slices {
		for host := range hosts {
			pod := podAt[place{strconv.Itoa(int(slice)), strconv.Itoa(int(host))}]
			if pod != nil && podReady(pod) {
				continue
			}
			if len(names) == maxHostsNamed {
				more++
				continue
			}
			why := "no pod"
			if pod != nil {
				why = fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
			}
			names = append(names, fmt.Sprintf("slice %d host %d (%s)", slice, host, why))
		}
	}
	text := "; not ready: " + strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more hosts", more)
	}
	return text
}

// exitCodes tells how the pods' containers have ended, for the message of a failure: " (container main of pod … exited
// with 3)".
func (o *observation) exitCodes() string {
	for _, pod := range o.pods {
		for _, status := range pod.Status.ContainerStatuses {
			if t := status.State.Terminated; t != nil && t.ExitCode != 0 {
				return fmt.Sprintf(" (container %s of pod %s exited with %d: %s)", status.Name, pod.Name, t.ExitCode, t.Reason)
			}
		}
	}
	return ""
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func headReady(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Labels[jobsetv1.ReplicatedJobNameKey] == jobset.HeadJob && podReady(&pod)
	})
}

// readySlices counts the slices all of whose hosts have a ready pod.
func readySlices(pods []corev1.Pod, slices, hosts int32) int32 {
	readyHosts := map[string]map[string]bool{} // by slice, by host
	for _, pod := range pods {
		if pod.Labels[jobsetv1.ReplicatedJobNameKey] != jobset.WorkersJob || !podReady(&pod) {
			continue
		}
		slice := pod.Labels[jobsetv1.JobIndexKey]
		if readyHosts[slice] == nil {
			readyHosts[slice] = map[string]bool{}
		}
		readyHosts[slice][pod.Labels[completionIndexLabel]] = true
	}
	ready := int32(0)
	for _, hostsOfSlice := range readyHosts {
		if hosts > 0 && int32(len(hostsOfSlice)) >= hosts {
			ready++
		}
	}
	return min(ready, slices)
}

func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}
