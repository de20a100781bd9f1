package controller

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/jobset"
)

func TestFromCreationToRunning(t *testing.T) {
	w := newWorld(t)
	job := w.job("pathways-user")
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "queue"}
	w.create(job)

	js := w.jobSet("pathways-user")
	if !metav1.IsControlledBy(js, job) || js.Labels["kueue.x-k8s.io/queue-name"] != "queue" {
		t.Error("the JobSet must be owned, and bear the labels", js.ObjectMeta)
	}
	w.event(job, "JobSetCreated")
	w.condition(job, v1.ConditionPending, metav1.ConditionTrue, "")
	if job.Status.Slices != "0/2" || job.Status.Address != "grpc://pathways-user-pathways-head-0-0.pathways-user."+w.namespace+".svc:29000" {
		t.Error(job.Status)
	}

	w.startPods(js)
	w.setPods(js, "pathways-head", ready())
	w.setPods(js, "workers-0", ready())
	w.setPods(js, "workers-1-0", ready())
	w.eventually(func() string {
		c := w.condition(job, v1.ConditionSlicesReady, metav1.ConditionFalse, "SlicesNotReady")
		if job.Status.Slices != "1/2" || c.Message != "1 of 2 slices ready; not ready: slice 1 host 1 (pod pathways-user-pathways-workers-1-1 is Pending)" {
			return c.Message
		}
		return ""
	})
	w.setPods(js, "workers-1-1", ready())
	w.condition(job, v1.ConditionRunning, metav1.ConditionTrue, "AllSlicesStarted")
	c := w.condition(job, v1.ConditionSlicesReady, metav1.ConditionTrue, "AllSlicesReady")
	if c.Message != "2 of 2 slices ready" || c.ObservedGeneration != job.Generation {
		t.Error(c)
	}
	w.event(job, "Running")
	w.event(job, "SlicesReady")

	kinds := map[string]int{}
	trueOnes := 0
	for _, c := range job.Status.Conditions {
		kinds[c.Type]++
		if c.Type != v1.ConditionSlicesReady && c.Status == metav1.ConditionTrue {
			trueOnes++
		}
	}
	if len(kinds) != 7 || len(job.Status.Conditions) != 7 || trueOnes != 1 {
		t.Error("one condition of each type, one of them True", job.Status.Conditions)
	}

	// A worker is lost: the job runs on, with one slice less.
	w.must(w.client.Delete(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pathways-user-pathways-workers-0-1"}},
		client.GracePeriodSeconds(0)))
	w.condition(job, v1.ConditionSlicesReady, metav1.ConditionFalse, "SlicesNotReady")
	if !meta.IsStatusConditionTrue(job.Status.Conditions, v1.ConditionRunning) || job.Status.SlicesReady != 1 {
		t.Error(job.Status)
	}
	w.event(job, "SliceLost")
}

func TestARestartStartsAnew(t *testing.T) {
	w := newWorld(t)
	job := w.job("again")
	w.create(job)
	js := w.jobSet("again")
	w.startPods(js)
	w.setPods(js, "", ready())
	w.condition(job, v1.ConditionRunning, metav1.ConditionTrue, "")

	// A condition of a type that nobody knows must not matter; the pods of the last run neither.
	meta.SetStatusCondition(&js.Status.Conditions, metav1.Condition{Type: "RestartingJobSet", Status: metav1.ConditionTrue, Reason: "Restarting"})
	js.Status.Restarts = 1
	w.must(w.client.Status().Update(w.ctx, js))
	c := w.condition(job, v1.ConditionPending, metav1.ConditionTrue, "Restarting")
	if job.Status.Restarts != 1 || job.Status.Slices != "0/2" || !strings.Contains(c.Message, "restart 1 of at most 1") {
		t.Error(job.Status, c.Message)
	}
	w.event(job, "Restarted")
	w.startPods(js)
	w.setPods(js, "", ready())
	w.condition(job, v1.ConditionRunning, metav1.ConditionTrue, "")

	w.finish(js, jobsetv1.JobSetFailed, "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
	c = w.condition(job, v1.ConditionFailed, metav1.ConditionTrue, "ReachedMaxRestarts")
	if job.Status.TerminalState != "Failed" || !strings.HasPrefix(c.Message, "pathwaysJob failed: jobset failed due to reaching max") || job.Status.Address != "" {
		t.Error(job.Status)
	}
	w.event(job, "Failed")
}

func TestCompletedStaysCompleted(t *testing.T) {
	w := newWorld(t)
	job := w.job("done")
	job.Spec.Controller.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
	w.create(job)
	js := w.jobSet("done")
	w.finish(js, jobsetv1.JobSetCompleted, "AllJobsCompleted", "jobset completed successfully")
	w.condition(job, v1.ConditionCompleted, metav1.ConditionTrue, "AllJobsCompleted")
	if job.Status.TerminalState != "Completed" {
		t.Error(job.Status)
	}
	w.event(job, "Completed")
	// Somebody cleans up: it is not run again.
	w.must(w.client.Delete(w.ctx, js))
	other := w.job("later")
	w.create(other)
	w.jobSet("later") // by now the operator has seen the deletion
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(js), js); !apierrors.IsNotFound(err) {
		t.Error("the JobSet of a completed job was made anew", err)
	}
}

func TestTheUsersExitCodeIsTold(t *testing.T) {
	w := newWorld(t)
	job := w.job("exits")
	job.Spec.Controller.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
	w.create(job)
	js := w.jobSet("exits")
	w.startPods(js)
	w.setPods(js, "head", corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}}})
	w.finish(js, jobsetv1.JobSetFailed, "ReachedMaxRestarts", "jobset failed")
	w.eventually(func() string {
		c := meta.FindStatusCondition(w.reread(job).Status.Conditions, v1.ConditionFailed)
		if c == nil || !strings.Contains(c.Message, "container main of pod exits-pathways-head-0-0 exited with 3: Error") {
			return "no exit code"
		}
		return ""
	})
}

func TestAForeignJobSetIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	foreign := &jobsetv1.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "taken", Namespace: w.namespace}}
	w.create(foreign)
	job := w.job("taken")
	w.create(job)
	c := w.condition(job, v1.ConditionDegraded, metav1.ConditionTrue, "NameConflict")
	if !strings.Contains(c.Message, "kubectl delete jobset -n "+w.namespace+" taken") {
		t.Error(c.Message)
	}
	w.event(job, "NameConflict")
	w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(foreign), foreign))
	if len(foreign.OwnerReferences) != 0 || foreign.Spec.ReplicatedJobs != nil {
		t.Error("it was touched")
	}
	// When it goes, the job starts by itself.
	w.must(w.client.Delete(w.ctx, foreign))
	w.condition(job, v1.ConditionDegraded, metav1.ConditionFalse, "")
	if !metav1.IsControlledBy(w.jobSet("taken"), job) {
		t.Error("not ours")
	}
	w.event(job, "Recovered")
}

func TestAJobSetThatIsDeletedComesBack(t *testing.T) {
	w := newWorld(t)
	job := w.job("back")
	w.create(job)
	first := w.jobSet("back")
	w.must(w.client.Delete(w.ctx, first))
	w.eventually(func() string {
		if w.jobSet("back").UID == first.UID {
			return "still the first one"
		}
		return ""
	})
}

func TestPodsOfAnEarlierJobAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	old := w.job("twice")
	w.create(old)
	js := w.jobSet("twice")
	w.startPods(js)
	w.must(w.client.Delete(w.ctx, old))
	w.must(w.client.Delete(w.ctx, js)) // the garbage collector's part
	job := w.job("twice")
	w.create(job)
	w.eventually(func() string {
		c := w.condition(job, v1.ConditionPending, metav1.ConditionTrue, "")
		if !strings.Contains(c.Message, "pods of an earlier job of this name are still there: twice-pathways-head-0-0") {
			return c.Message
		}
		return ""
	})
	w.must(w.client.DeleteAllOf(w.ctx, &corev1.Pod{}, client.InNamespace(w.namespace), client.GracePeriodSeconds(0)))
	if !metav1.IsControlledBy(w.jobSet("twice"), job) {
		t.Error("not ours")
	}
}

func TestSuspendedAndResumed(t *testing.T) {
	w := newWorld(t)
	job := w.job("queued")
	w.create(job)
	js := w.jobSet("queued")
	js.Spec.Suspend = ptr.To(true)
	w.must(w.client.Update(w.ctx, js))
	w.condition(job, v1.ConditionSuspended, metav1.ConditionTrue, "SuspendedJobs")
	if job.Status.Address != "" {
		t.Error("no address while nothing runs")
	}
	w.event(job, "Suspended")
	js.Spec.Suspend = ptr.To(false)
	w.must(w.client.Update(w.ctx, js))
	w.condition(job, v1.ConditionSuspended, metav1.ConditionFalse, "")
	w.event(job, "Resumed")
}

func TestProblemsOfPodsAreToldAndCleared(t *testing.T) {
	w := newWorld(t)
	job := w.job("sick")
	w.create(job)
	js := w.jobSet("sick")
	w.startPods(js)
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "pathways-worker", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	w.setPods(js, "workers-0", waiting("ImagePullBackOff", "not found"))
	w.eventually(func() string {
		c := w.condition(job, v1.ConditionDegraded, metav1.ConditionTrue, "ImagePullFailed")
		for _, words := range []string{"the image repository/server:v1 of container pathways-worker of pod sick-pathways-workers-0-0",
			"spec.pathwaysVersion", "not found", "the same with 1 more pods"} {
			if !strings.Contains(c.Message, words) {
				return c.Message + " misses " + words
			}
		}
		return ""
	})
	w.event(job, "ImagePullFailed")
	w.setPods(js, "", ready())
	w.condition(job, v1.ConditionDegraded, metav1.ConditionFalse, "AsExpected")
	w.event(job, "Recovered")
}

func TestALostWorkerThatKubernetesWouldNotReplace(t *testing.T) {
	w := newWorld(t)
	job := w.job("slices")
	w.create(job)
	js := w.jobSet("slices")
	lost, whole := w.sliceJob(js, 0), w.sliceJob(js, 1)
	w.create(lost)
	w.create(whole)
	w.startPods(js)
	w.setPods(js, "", ready())
	w.condition(job, v1.ConditionRunning, metav1.ConditionTrue, "")
	w.setPods(js, "workers-0-1", corev1.PodStatus{Phase: corev1.PodSucceeded})
	lost.Status.StartTime, lost.Status.Succeeded, lost.Status.CompletedIndexes = ptr.To(metav1.Now()), 1, "1"
	w.must(w.client.Status().Update(w.ctx, lost))
	w.condition(job, v1.ConditionDegraded, metav1.ConditionTrue, "ServerExited")

	// The slice is too young; once it is old enough, which the reconciler's clock says, its Job goes, and only its.
	old := &observation{job: job, jobSet: js, now: time.Now().Add(time.Minute)}
	var pods corev1.PodList
	w.must(w.client.List(w.ctx, &pods, client.InNamespace(w.namespace)))
	old.pods = pods.Items
	r := &Reconciler{client: w.client, recorder: discardEvents{}}
	w.must(r.restartSlices(w.ctx, old))
	var left batchv1.JobList
	w.must(w.client.List(w.ctx, &left, client.InNamespace(w.namespace)))
	for _, j := range left.Items {
		if (j.Name == lost.Name) != (j.DeletionTimestamp != nil) {
			t.Error(j.Name, j.DeletionTimestamp)
		}
	}
}

func TestMetricsFollow(t *testing.T) {
	w := newWorld(t)
	job := w.job("measured")
	w.create(job)
	js := w.jobSet("measured")
	w.startPods(js)
	w.setPods(js, "", ready())
	w.condition(job, v1.ConditionRunning, metav1.ConditionTrue, "")
	value := func(name string) (float64, bool) {
		families, err := w.registry.Gather()
		w.must(err)
		for _, family := range families {
			for _, metric := range family.Metric {
				if family.GetName() == name && metric.Label[1].GetValue() == w.namespace {
					return metric.Gauge.GetValue(), true
				}
			}
		}
		return 0, false
	}
	if v, _ := value("pathwaysjob_slices_ready"); v != 2 {
		t.Error("pathwaysjob_slices_ready", v)
	}
	w.must(w.client.Delete(w.ctx, job))
	w.eventually(func() string {
		if _, there := value("pathwaysjob_slices_ready"); there {
			return "a deleted job is still measured"
		}
		return ""
	})
}

// JobSet is installed only after the operator has started and a job waits for it.
func TestJobSetComesLater(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: needs an API server")
	}
	env, stop, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w := env.world(t)
	job := w.job("early")
	w.create(job)
	c := w.condition(job, v1.ConditionDegraded, metav1.ConditionTrue, "JobSetNotInstalled")
	if !strings.Contains(c.Message, "kubectl apply --server-side -f https://github.com/kubernetes-sigs/jobset/") {
		t.Error(c.Message)
	}
	w.event(job, "JobSetNotInstalled")

	crd := w.readJobSetCRD()
	fresh := crd.DeepCopy()
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	delete(spec.Properties, "coordinator") // as before 0.8
	w.create(crd)
	w.condition(job, v1.ConditionDegraded, metav1.ConditionTrue, "JobSetTooOld")

	crd.Spec = fresh.Spec
	w.eventually(func() string {
		w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(crd), crd))
		crd.Spec = *fresh.Spec.DeepCopy()
		if err := w.client.Update(w.ctx, crd); err != nil {
			return err.Error()
		}
		return ""
	})
	w.condition(job, v1.ConditionDegraded, metav1.ConditionFalse, "")
	w.jobSet("early")
	if jobset.Address(job) != w.reread(job).Status.Address {
		t.Error(job.Status)
	}
}
