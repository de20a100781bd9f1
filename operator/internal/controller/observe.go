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
	// Of the conditions that follow the job's life.
	reasonStarting      = "JobSetCreated"
	reasonWaiting       = "WaitingForPods"
	reasonLeftovers     = "WaitingForDeletion"
	reasonRestarting    = "Restarting"
	reasonRunning       = "AllSlicesStarted"
	reasonNotRunning    = "NotRunning"
	reasonSuspended     = "SuspendedJobs"
	reasonNotSuspended  = "NotSuspended"
	reasonNotFinished   = "NotFinished"
	reasonFinished      = "Finished"
	reasonSlicesReady   = "AllSlicesReady"
	reasonSlicesUnready = "SlicesNotReady"
	reasonAsExpected    = "AsExpected"

	// Of Degraded, and of the events that go with it.
	reasonJobSetMissing  = "JobSetNotInstalled"
	reasonJobSetTooOld   = "JobSetTooOld"
	reasonJobSetIdle     = "JobSetControllerNotRunning"
	reasonNameConflict   = "NameConflict"
	reasonInvalidSpec    = "InvalidSpec"
	reasonCreationFailed = "JobSetCreationFailed"
	reasonPodsNotCreated = "PodsNotCreated"
	reasonImagePull      = "ImagePullFailed"
	reasonCannotStart    = "ContainerCannotStart"
	reasonUnschedulable  = "Unschedulable"
	reasonOutOfMemory    = "OutOfMemory"
	reasonCrashLoop      = "CrashLoopBackOff"
	reasonEvicted        = "PodFailed"
	reasonExited         = "ServerExited"
)

const (
	patienceForJobSet  = 30 * time.Second // until the JobSet controller is taken for absent
	patienceForPods    = 15 * time.Second // until pods that do not appear are a problem, if an event says why
	patienceForMissing = time.Minute      // the same, if none does
	oomRemembered      = 5 * time.Minute
	crashRemembered    = 10 * time.Minute

	maxHostsNamed = 3    // in one message
	maxMessage    = 1000 // an event's limit is 1024
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

// slicesSeen is what the pods of the current run say.
type slicesSeen struct {
	pods                  []corev1.Pod
	ready, desired, hosts int32 // hosts: of each slice
	head                  bool  // is ready
}

func (o *observation) slices() slicesSeen {
	seen := slicesSeen{pods: o.currentPods(), hosts: jobset.Hosts(o.job)}
	if len(o.job.Spec.Workers) > 0 {
		seen.desired = o.job.Spec.Workers[0].NumSlices
	}
	seen.ready = readySlices(seen.pods, seen.desired, seen.hosts)
	seen.head = headReady(seen.pods)
	return seen
}

func (s *slicesSeen) count() string {
	return fmt.Sprintf("%d of %d slices ready", s.ready, s.desired)
}

// status derives the whole status anew; the old one is only asked when a condition has last changed, and whether the
// slices have all been ready before.
func (o *observation) status() v1.PathwaysJobStatus {
	seen := o.slices()
	now := o.phase(&seen)
	finished := now.kind == v1.ConditionCompleted || now.kind == v1.ConditionFailed

	status := *o.job.Status.DeepCopy()
	status.ObservedGeneration = o.job.Generation
	status.SlicesReady, status.SlicesDesired = seen.ready, seen.desired
	status.Slices = fmt.Sprintf("%d/%d", seen.ready, seen.desired)
	status.TerminalState, status.Address = "", ""
	if finished {
		status.TerminalState = now.kind
	}
	if o.jobSet != nil {
		status.Restarts = o.jobSet.Status.Restarts
		if !finished && now.kind != v1.ConditionSuspended {
			status.Address = jobset.Address(o.job)
		}
	}

	set := func(kind string, value bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message),
			ObservedGeneration: o.job.Generation, LastTransitionTime: metav1.NewTime(o.now)}
		if value {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	for _, other := range []phase{
		{v1.ConditionPending, reasonNotRunning, "not pending"},
		{v1.ConditionRunning, reasonNotRunning, "not running"},
		{v1.ConditionSuspended, reasonNotSuspended, "not suspended"},
		{v1.ConditionCompleted, reasonNotFinished, "not completed"},
		{v1.ConditionFailed, reasonNotFinished, "not failed"},
	} {
		if other.kind == now.kind {
			set(now.kind, true, now.reason, now.message)
		} else {
			set(other.kind, false, other.reason, other.message)
		}
	}

	found := o.problem
	if found == nil && o.jobSet != nil {
		found = podsProblem(seen.pods, o.now)
	}
	switch {
	case finished:
		set(v1.ConditionSlicesReady, false, reasonFinished, "the job has ended")
	case seen.ready == seen.desired:
		set(v1.ConditionSlicesReady, true, reasonSlicesReady, seen.count())
	default:
		set(v1.ConditionSlicesReady, false, reasonSlicesUnready, seen.count()+seen.unready())
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

func (o *observation) phase(seen *slicesSeen) phase {
	pending := func(reason, message string) phase {
		return phase{v1.ConditionPending, reason, "pathwaysJob pending: " + message}
	}
	if o.jobSet == nil {
		switch {
		case o.problem != nil:
			return pending(o.problem.reason, o.problem.message)
		case o.waiting != "":
			return pending(reasonLeftovers, o.waiting)
		}
		return pending(reasonStarting, "jobSet is getting created")
	}
	if c := jobSetCondition(o.jobSet, string(jobsetv1.JobSetCompleted)); c != nil {
		return phase{v1.ConditionCompleted, c.Reason, "pathwaysJob completed: " + c.Message}
	}
	if c := jobSetCondition(o.jobSet, string(jobsetv1.JobSetFailed)); c != nil {
		message := "pathwaysJob failed: " + c.Message
		old := meta.FindStatusCondition(o.job.Status.Conditions, v1.ConditionFailed)
		if old != nil && old.Status == metav1.ConditionTrue && len(old.Message) > len(message) {
			return phase{v1.ConditionFailed, c.Reason, old.Message} // it has the exit code of a pod that may be gone by now
		}
		return phase{v1.ConditionFailed, c.Reason, message + o.exitCode()}
	}
	waitingFor := seen.count()
	if !seen.head {
		waitingFor = "the head is not ready yet"
	}
	switch {
	case ptr.Deref(o.jobSet.Spec.Suspend, false):
		return phase{v1.ConditionSuspended, reasonSuspended, "pathwaysJob suspended: jobset is suspended"}
	case seen.head && (seen.ready == seen.desired || o.ranBefore()):
		return phase{v1.ConditionRunning, reasonRunning, "pathwaysJob running: jobSet is running"}
	case o.jobSet.Status.Restarts > 0:
		return pending(reasonRestarting, fmt.Sprintf("restart %d of at most %d; %s", o.jobSet.Status.Restarts,
			o.job.Spec.MaxRestarts, waitingFor))
	case len(seen.pods) > 0:
		return pending(reasonWaiting, waitingFor)
	}
	return pending(reasonStarting, "jobSet is getting created")
}

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

// unready names the first few hosts that are missing, as "; not ready: slice 1 host 0 (pod … is Pending)".
func (s *slicesSeen) unready() string {
	type place struct{ slice, host string }
	podAt := map[place]*corev1.Pod{}
	for i := range s.pods {
		labels := s.pods[i].Labels
		if labels[jobsetv1.ReplicatedJobNameKey] == jobset.WorkersJob {
			podAt[place{labels[jobsetv1.JobIndexKey], labels[completionIndexLabel]}] = &s.pods[i]
		}
	}
	var names []string
	more := 0
	for slice := range s.desired {
		for host := range s.hosts {
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

// exitCode tells how a container has ended, for the message of a failure: " (container main of pod … exited with 3:
// Error)". It does not say which failure came first: with several, any may be told.
func (o *observation) exitCode() string {
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
