// Package controller makes each PathwaysJob real as a JobSet, and keeps its status true.
//
// reconciler.go holds the loop, restart.go starts slices anew that Kubernetes would not, observe.go turns what was seen into a status, problems.go finds what is wrong with pods,
// jobsetapi.go copes with a cluster where JobSet is not (yet) installed.
package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/jobset"
)

// How soon an object is looked at again although nothing was heard of it. Events can be lost, and some things (a JobSet
// that is installed later, a problem that is over) bring none.
const (
	soon      = 2 * time.Second
	unsettled = 10 * time.Second
	settled   = time.Minute
)

// Options of the reconciler.
type Options struct {
	Defaults                jobset.Defaults
	MaxConcurrentReconciles int
	Metrics                 *Metrics
}

// Reconciler reconciles PathwaysJobs. Safe for concurrent use.
type Reconciler struct {
	client   client.Client // reads come from the cache
	live     client.Reader // reads that must not be stale, or are too rare to be cached
	recorder events.EventRecorder
	defaults jobset.Defaults
	metrics  *Metrics
	jobSets  *jobSetAPI
	now      func() time.Time
}

// CacheByObject limits the manager's cache to the Jobs and pods of PathwaysJobs.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Pod{}: ofPathwaysJobs(), &batchv1.Job{}: ofPathwaysJobs()}
}

func ofPathwaysJobs() cache.ByObject {
	exists, err := labels.NewRequirement(jobset.NameLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return cache.ByObject{Label: labels.NewSelector().Add(*exists)}
}

// Setup adds the reconciler to the manager.
func Setup(mgr ctrl.Manager, options Options) error {
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("pathways-job-controller"),
		defaults: options.Defaults,
		metrics:  options.Metrics,
		now:      time.Now,
	}
	byNameLabel := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[jobset.NameLabel]}
		return []reconcile.Request{{NamespacedName: name}}
	})
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("pathwaysjob").
		For(&v1.PathwaysJob{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})). // its status is our own
		Watches(&corev1.Pod{}, byNameLabel).
		Watches(&batchv1.Job{}, byNameLabel).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: options.MaxConcurrentReconciles,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](500*time.Millisecond, time.Minute),
		}).
		Build(r)
	if err != nil {
		return err
	}
	r.jobSets = newJobSetAPI(mgr.GetAPIReader(), mgr.GetCache(), built)
	return nil
}

// Reconcile brings one PathwaysJob closer to what it asks for.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	job := &v1.PathwaysJob{}
	if err := r.client.Get(ctx, request.NamespacedName, job); err != nil {
		if apierrors.IsNotFound(err) {
			r.metrics.forget(request.Namespace, request.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	if job.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // its JobSet goes with it, by its owner reference
	}

	seen := &observation{job: job, now: r.now()}
	retry, err := r.observe(ctx, seen)
	if err != nil {
		return reconcile.Result{}, err
	}
	if retry == nil {
		return reconcile.Result{}, nil
	}
	if err := r.update(ctx, job, seen.status()); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: soon / 10}, nil // the cache is behind our own last change
	} else if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: retry.after}, retry.err
}

// retry says when to look again: after a time, or with back-off because of an error. Nil: never, nothing is left to do.
type retry struct {
	after time.Duration
	err   error
}

// observe finds the JobSet (or makes it) and its pods, and what is wrong with them. An error means that nothing can be
// said, not even in the status.
func (r *Reconciler) observe(ctx context.Context, seen *observation) (*retry, error) {
	job := seen.job
	ended := job.Status.TerminalState != "" // then the last status stands, even if what was left is removed
	seen.problem = r.jobSets.ensure(ctx)
	if seen.problem != nil {
		if ended {
			return nil, nil
		}
		return &retry{after: unsettled}, nil
	}
	js := &jobsetv1.JobSet{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(job), js)
	switch {
	case apierrors.IsNotFound(err) && ended:
		return nil, nil
	case apierrors.IsNotFound(err):
		return r.create(ctx, seen)
	case err != nil:
		return nil, err
	case ended && (js.DeletionTimestamp != nil || !metav1.IsControlledBy(js, job)):
		return nil, nil
	case !metav1.IsControlledBy(js, job):
		seen.notOurs(js)
		return &retry{after: unsettled}, nil
	case js.DeletionTimestamp != nil:
		seen.waiting = "its JobSet is being deleted and will be made anew"
		return &retry{after: soon}, nil
	}
	seen.jobSet = js

	pods, err := r.podsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if pod.Labels[jobsetv1.JobSetUIDKey] == string(js.UID) {
			seen.pods = append(seen.pods, pod)
		}
	}
	restarting := r.restartSlices(ctx, seen) // an error must not keep the status from being told
	if seen.problem, err = r.missingPods(ctx, seen); err != nil {
		return nil, err
	}
	status := seen.status()
	if restarting != nil {
		return &retry{err: restarting}, nil
	}
	if status.TerminalState != "" {
		return &retry{}, nil
	}
	if status.SlicesReady == status.SlicesDesired && meta.IsStatusConditionFalse(status.Conditions, v1.ConditionDegraded) {
		return &retry{after: settled}, nil
	}
	return &retry{after: unsettled}, nil
}

// create makes the JobSet.
func (r *Reconciler) create(ctx context.Context, seen *observation) (*retry, error) {
	job := seen.job
	js, err := jobset.Build(job, r.defaults)
	if err == nil {
		err = ctrl.SetControllerReference(job, js, r.client.Scheme())
	}
	if err != nil {
		seen.problem = &problem{reasonInvalidSpec, fmt.Sprintf("this PathwaysJob cannot be run: %v; delete it and create it anew", err)}
		return &retry{}, nil // the spec cannot change
	}
	leftovers, err := r.podsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	if names := stillLeaving(leftovers, r.now()); len(names) > 0 {
		// New workers would find the old head under the same name.
		seen.waiting = "pods of an earlier job of this name are still there: " + strings.Join(names, ", ")
		return &retry{after: soon}, nil
	}
	err = r.client.Create(ctx, js)
	switch {
	case err == nil:
		r.recorder.Eventf(job, js, corev1.EventTypeNormal, "JobSetCreated", "Create", "created JobSet %s", js.Name)
		seen.jobSet = js
		return &retry{after: unsettled}, nil
	case apierrors.IsAlreadyExists(err):
		// The cache has not seen it yet: ours from a moment ago, or somebody else's.
		existing := &jobsetv1.JobSet{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(js), existing); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		if metav1.IsControlledBy(existing, job) {
			seen.jobSet = existing
		} else {
			seen.notOurs(existing)
		}
		return &retry{after: soon}, nil
	case apierrors.IsConflict(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err):
		return nil, err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		seen.waiting = "the namespace is being deleted"
		return &retry{after: unsettled}, nil
	}
	advice := "it is tried again"
	if apierrors.IsInternalError(err) && strings.Contains(err.Error(), "webhook") {
		advice = "JobSet's webhook does not answer: see kubectl get pods -n jobset-system; it is tried again"
	}
	seen.problem = &problem{reasonCreationFailed, fmt.Sprintf("the JobSet could not be created: %v; %s", err, advice)}
	return &retry{err: fmt.Errorf("creating JobSet: %w", err)}, nil
}

// notOurs: there is a JobSet of the same name that this PathwaysJob does not own.
func (o *observation) notOurs(js *jobsetv1.JobSet) {
	owner := metav1.GetControllerOf(js)
	if js.DeletionTimestamp != nil || owner != nil && owner.Kind == "PathwaysJob" && owner.Name == o.job.Name {
		o.waiting = "the JobSet of an earlier PathwaysJob of this name is being deleted"
		return
	}
	o.problem = &problem{reasonNameConflict, fmt.Sprintf("a JobSet named %s exists in namespace %s that this PathwaysJob does "+
		"not own, and it is left alone: delete it (kubectl delete jobset -n %s %s), or create the PathwaysJob under another name",
		js.Name, js.Namespace, js.Namespace, js.Name)}
}

// podsOf returns all pods that bear the job's name, those of an earlier job too.
func (r *Reconciler) podsOf(ctx context.Context, job *v1.PathwaysJob) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{jobset.NameLabel: job.Name})
	return pods.Items, err
}

// stillLeaving names the pods that should soon be gone. One whose time is long over (a lost node) is not waited for.
func stillLeaving(pods []corev1.Pod, now time.Time) []string {
	var names []string
	for _, pod := range pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		overdue := pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > time.Minute
		if !ended && !overdue {
			names = append(names, pod.Name)
		}
	}
	return names
}

// missingPods looks for the reason why pods are not created, or do not start. Kubernetes tells it in events only.
func (r *Reconciler) missingPods(ctx context.Context, seen *observation) (*problem, error) {
	js := seen.jobSet
	if ptr.Deref(js.Spec.Suspend, false) || js.Status.TerminalState != "" {
		return nil, nil
	}
	age := seen.now.Sub(js.CreationTimestamp.Time)
	if age > patienceForJobSet && len(js.Status.ReplicatedJobsStatus) == 0 && len(js.Status.Conditions) == 0 {
		return &problem{reasonJobSetIdle, "the JobSet controller has not taken up the JobSet: see kubectl get pods -n jobset-system"}, nil
	}
	pods := seen.currentPods()
	want := 1
	if headReady(pods) {
		want += int(seen.job.Spec.Workers[0].NumSlices * jobset.Hosts(seen.job))
	}
	if age < patienceForPods || len(pods) >= want && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return isStuck(&p, seen.now) }) {
		return nil, nil
	}
	if found, err := r.latestWarning(ctx, seen, pods); found != nil || err != nil {
		return found, err
	}
	notReady := meta.FindStatusCondition(seen.job.Status.Conditions, v1.ConditionSlicesReady)
	if len(pods) < want && notReady != nil && notReady.Status == metav1.ConditionFalse &&
		seen.now.Sub(notReady.LastTransitionTime.Time) > patienceForMissing {
		return &problem{reasonPodsNotCreated, fmt.Sprintf("%d of %d pods are missing, and no event says why: see kubectl describe "+
			"job -n %s -l %s=%s", want-len(pods), want, js.Namespace, jobsetv1.JobSetNameKey, js.Name)}, nil
	}
	return nil, nil
}

// isStuck: on its node for a while, but no container was even tried.
func isStuck(pod *corev1.Pod, now time.Time) bool {
	return pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && pod.Status.StartTime != nil &&
		now.Sub(pod.Status.StartTime.Time) > patienceForPods && podProblem(pod, now) == nil
}

// latestWarning is the newest warning about the JobSet, its Jobs that lack pods, or its stuck pods.
func (r *Reconciler) latestWarning(ctx context.Context, seen *observation, pods []corev1.Pod) (*problem, error) {
	js := seen.jobSet
	var stuck []string
	for i := range pods {
		if isStuck(&pods[i], seen.now) {
			stuck = append(stuck, pods[i].Name)
		}
	}
	var warnings corev1.EventList
	err := r.live.List(ctx, &warnings, client.InNamespace(js.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("type", corev1.EventTypeWarning)})
	if err != nil {
		return nil, err
	}
	var newest *corev1.Event
	for i := range warnings.Items {
		event := &warnings.Items[i]
		about := event.InvolvedObject
		ours := about.UID == js.UID ||
			about.Kind == "Job" && strings.HasPrefix(about.Name, js.Name+"-pathways-") ||
			about.Kind == "Pod" && slices.Contains(stuck, about.Name)
		// While followers wait for their slice's leader, JobSet refuses them: that is how it orders them.
		transient := strings.Contains(event.Message, "leader pod not yet scheduled")
		fresh := eventTime(event).After(js.CreationTimestamp.Time) && seen.now.Sub(eventTime(event)) < crashRemembered
		if ours && !transient && fresh && eventReasonSaysWhy(event.Reason) && (newest == nil || eventTime(event).After(eventTime(newest))) {
			newest = event
		}
	}
	if newest == nil {
		return nil, nil
	}
	reason := reasonPodsNotCreated
	if newest.InvolvedObject.Kind == "Pod" {
		reason = reasonCannotStart
	}
	return &problem{reason, fmt.Sprintf("%s %s: %s: %s", newest.InvolvedObject.Kind, newest.InvolvedObject.Name, newest.Reason, newest.Message)}, nil
}

// eventReasonSaysWhy: of the warnings, those about something that could not be made, not about restarts that happened.
func eventReasonSaysWhy(reason string) bool {
	return strings.HasPrefix(reason, "Failed") && reason != "FailedScheduling" || strings.HasSuffix(reason, "CreationFailed") ||
		strings.HasSuffix(reason, "Failed")
}

func eventTime(event *corev1.Event) time.Time {
	latest := event.LastTimestamp.Time
	for _, t := range []time.Time{event.EventTime.Time, event.FirstTimestamp.Time} {
		if t.After(latest) {
			latest = t
		}
	}
	if event.Series != nil && event.Series.LastObservedTime.After(latest) {
		latest = event.Series.LastObservedTime.Time
	}
	return latest
}

// update stores a changed status, and tells of the change by events.
func (r *Reconciler) update(ctx context.Context, job *v1.PathwaysJob, status v1.PathwaysJobStatus) error {
	r.metrics.set(job.Namespace, job.Name, &status)
	if equality.Semantic.DeepEqual(job.Status, status) {
		return nil
	}
	old := job.DeepCopy()
	job.Status = status
	// A conflict means that this was decided from an old object.
	if err := r.client.Status().Patch(ctx, job, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.tell(job, &old.Status, &status)
	return nil
}

// tell emits an event for each condition whose status or reason is new.
func (r *Reconciler) tell(job *v1.PathwaysJob, old, current *v1.PathwaysJobStatus) {
	emit := func(kind, reason, message string) {
		r.recorder.Eventf(job, nil, kind, reason, "Observe", "%s", clip(message))
	}
	for _, condition := range current.Conditions {
		before := meta.FindStatusCondition(old.Conditions, condition.Type)
		became := condition.Status == metav1.ConditionTrue && (before == nil || before.Status != condition.Status)
		ceased := condition.Status == metav1.ConditionFalse && before != nil && before.Status == metav1.ConditionTrue
		otherReason := condition.Status == metav1.ConditionTrue && before != nil && before.Reason != condition.Reason
		switch condition.Type {
		case v1.ConditionRunning, v1.ConditionCompleted, v1.ConditionSuspended:
			if became {
				emit(corev1.EventTypeNormal, condition.Type, condition.Message)
			}
			if condition.Type == v1.ConditionSuspended && ceased && current.TerminalState == "" {
				emit(corev1.EventTypeNormal, "Resumed", "the JobSet is no longer suspended")
			}
		case v1.ConditionFailed:
			if became {
				emit(corev1.EventTypeWarning, condition.Type, condition.Message)
			}
		case v1.ConditionDegraded:
			if became || otherReason {
				emit(corev1.EventTypeWarning, condition.Reason, condition.Message)
			} else if ceased && current.TerminalState == "" {
				emit(corev1.EventTypeNormal, "Recovered", "no longer a problem: "+before.Reason)
			}
		case v1.ConditionSlicesReady:
			if became {
				emit(corev1.EventTypeNormal, "SlicesReady", condition.Message)
			} else if ceased && meta.IsStatusConditionTrue(current.Conditions, v1.ConditionRunning) { // else more than a slice is
				emit(corev1.EventTypeWarning, "SliceLost", condition.Message)
			}
		}
	}
	if current.Restarts > old.Restarts {
		emit(corev1.EventTypeWarning, "Restarted", fmt.Sprintf("the whole job is started again, restart %d of at most %d",
			current.Restarts, job.Spec.MaxRestarts))
	}
}
