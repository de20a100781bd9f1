package controller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/openpathways/openpathways/operator/internal/jobset"
)

// A slice is started anew at most this often; in between, Kubernetes' own back-off holds.
const sliceRestartInterval = 20 * time.Second

// restartSlices starts slices anew that lack a worker which the Job controller will not replace, or not soon:
//   - It takes a worker that has ended with exit code 0 (as servers do when they are told to leave, so after the deletion
//     of its pod) for one that has done its work.
//   - It waits 10 s before it replaces a failed pod, 20 s before the second, and so on, up to 10 minutes; it forgets that
//     only when a pod has succeeded, which workers never do. From the second loss on, that is too long.
//
// The way is to delete the slice's Job: JobSet makes it anew at once, the other slices go on, and nothing is counted as
// a restart of the whole. With elastic slices the user has said how often a slice may fail, so losses must be counted.
func (r *Reconciler) restartSlices(ctx context.Context, seen *observation) error {
	js := seen.jobSet
	if ptr.Deref(js.Spec.Suspend, false) || js.Status.TerminalState != "" {
		return nil
	}
	var jobs batchv1.JobList
	if err := r.client.List(ctx, &jobs, client.InNamespace(js.Namespace), client.MatchingLabels{
		jobset.NameLabel:              js.Name,
		jobsetv1.ReplicatedJobNameKey: jobset.WorkersJob,
		jobsetv1.JobSetUIDKey:         string(js.UID),
		jobset.RestartAttemptLabel:    strconv.Itoa(int(js.Status.Restarts)),
	}); err != nil {
		return err
	}
	podsOfSlice := map[string]int32{}
	for _, pod := range seen.currentPods() {
		if pod.Labels[jobsetv1.ReplicatedJobNameKey] == jobset.WorkersJob && pod.Status.Phase != corev1.PodSucceeded &&
			pod.Status.Phase != corev1.PodFailed {
			podsOfSlice[pod.Labels[jobsetv1.JobIndexKey]]++
		}
	}
	elastic := seen.job.Spec.Controller.ElasticSlices > 0
	for i := range jobs.Items {
		job := &jobs.Items[i]
		slice := job.Labels[jobsetv1.JobIndexKey]
		why := restartReason(job, podsOfSlice[slice], elastic)
		if why == "" || job.DeletionTimestamp != nil || seen.now.Sub(job.CreationTimestamp.Time) < sliceRestartInterval {
			continue
		}
		err := r.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // somebody was quicker
		}
		if err != nil {
			return fmt.Errorf("starting slice %s anew: %w", slice, err)
		}
		r.recorder.Eventf(seen.job, job, corev1.EventTypeWarning, "SliceRestarted", "Restart", "slice %s is started anew: %s", slice, why)
	}
	return nil
}

// restartReason says why the slice has to be started anew; empty: it has not.
func restartReason(job *batchv1.Job, pods int32, elastic bool) string {
	hosts := ptr.Deref(job.Spec.Completions, 1)
	if pods >= hosts {
		return ""
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && condition.Type == batchv1.JobFailed {
			return "" // the JobSet's failure policy says what follows
		}
	}
	if job.Status.Succeeded > 0 {
		return fmt.Sprintf("%d of its %d workers have ended with exit code 0, and Kubernetes does not replace those", job.Status.Succeeded, hosts)
	}
	if job.Status.Failed > 0 && !elastic {
		return fmt.Sprintf("%d of its %d workers are lost, and Kubernetes would wait long before it replaced them", hosts-pods, hosts)
	}
	return ""
}
