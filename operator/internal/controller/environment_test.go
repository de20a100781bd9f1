package controller

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/jobset"
)

// These tests run against a real API server and etcd, whose programs lie in $KUBEBUILDER_ASSETS. No other controller
// runs: the tests play JobSet's, the Job controller's and the kubelet's parts by writing the status that those would.

const patience = 20 * time.Second

// environment is an API server with the operator running against it.
type environment struct {
	client   client.Client
	config   *rest.Config
	registry *prometheus.Registry
}

var shared *environment // with JobSet installed; nil with -short

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	env, stop, err := start(jobSetCRD())
	if err != nil {
		fmt.Fprintf(os.Stderr, "no API server to test with: %v\nset KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, or pass -short\n", err)
		os.Exit(1)
	}
	shared = env
	code := m.Run()
	stop()
	os.Exit(code)
}

// jobSetCRD is the file that the JobSet module of go.mod brings.
func jobSetCRD() string {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/jobset").Output()
	if err != nil {
		panic(err)
	}
	return filepath.Join(strings.TrimSpace(string(output)), "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml")
}

func start(crds ...string) (*environment, func(), error) {
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetv1.AddToScheme, v1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	server := &envtest.Environment{
		CRDDirectoryPaths:     append([]string{"../../../deploy/manifests/parts/crd.yaml"}, crds...),
		ErrorIfCRDPathMissing: true,
	}
	restConfig, err := server.Start()
	if err != nil {
		return nil, nil, err
	}
	restConfig.QPS = -1
	c, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache:      cache.Options{ByObject: CacheByObject()},
	})
	if err != nil {
		return nil, nil, err
	}
	registry := prometheus.NewRegistry()
	err = Setup(mgr, Options{
		Defaults:                jobset.Defaults{ImageRepository: "repository", Version: "v1", NodeKind: v1.NodeKindCPU},
		MaxConcurrentReconciles: 4,
		Metrics:                 NewMetrics(registry),
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop := func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "the manager:", err)
		}
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "the API server:", err)
		}
	}
	return &environment{client: c, config: restConfig, registry: registry}, stop, nil
}

func (w *world) readJobSetCRD() *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	content, err := os.ReadFile(jobSetCRD())
	w.must(err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	w.must(yaml.Unmarshal(content, crd))
	return crd
}

// world is one test's namespace.
type world struct {
	*testing.T
	*environment
	ctx       context.Context
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		t.Skip("-short: needs an API server")
	}
	t.Parallel()
	return shared.world(t)
}

func (e *environment) world(t *testing.T) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return &world{T: t, environment: e, ctx: t.Context(), namespace: namespace.Name}
}

// job is the document's PathwaysJob, not yet created.
func (w *world) job(name string) *v1.PathwaysJob {
	return &v1.PathwaysJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: v1.PathwaysJobSpec{
			MaxRestarts: 1,
			PathwaysDir: "gs://bucket",
			Workers:     []v1.WorkerSpec{{Type: "ct5p-hightpu-4t", Topology: "2x2x2", NumSlices: 2}},
			Controller:  v1.ControllerSpec{DeploymentMode: v1.DeploymentDefault},
		},
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(object client.Object) {
	w.Helper()
	w.must(w.client.Create(w.ctx, object))
}

// eventually waits for check to return "", else fails with what it returned last.
func (w *world) eventually(check func() string) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		missing := check()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatal(missing)
		}
		time.Sleep(50 * time.Millisecond) // polls: an API server's client has nothing better for a read
	}
}

// jobSet waits for the JobSet of that name.
func (w *world) jobSet(name string) *jobsetv1.JobSet {
	w.Helper()
	js := &jobsetv1.JobSet{}
	w.eventually(func() string {
		if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, js); err != nil {
			return err.Error()
		}
		return ""
	})
	return js
}

func (w *world) reread(job *v1.PathwaysJob) *v1.PathwaysJob {
	w.Helper()
	w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(job), job))
	return job
}

// condition waits until a condition has that status and reason, and gives it.
func (w *world) condition(job *v1.PathwaysJob, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	w.Helper()
	var found metav1.Condition
	w.eventually(func() string {
		condition := meta.FindStatusCondition(w.reread(job).Status.Conditions, kind)
		if condition == nil || condition.Status != status || reason != "" && condition.Reason != reason {
			return fmt.Sprintf("condition %s is not %s (%s): %+v", kind, status, reason, job.Status.Conditions)
		}
		found = *condition
		return ""
	})
	return found
}

// event waits for an event about the job.
func (w *world) event(job *v1.PathwaysJob, reason string) string {
	w.Helper()
	message := ""
	w.eventually(func() string {
		var events corev1.EventList
		w.must(w.client.List(w.ctx, &events, client.InNamespace(w.namespace)))
		for _, event := range events.Items {
			if event.InvolvedObject.UID == job.UID && event.Reason == reason {
				message = event.Message
				return ""
			}
		}
		return "no event " + reason
	})
	return message
}

// startPods plays the JobSet and Job controllers: it creates the pods, pending.
func (w *world) startPods(js *jobsetv1.JobSet) {
	w.Helper()
	for _, rj := range js.Spec.ReplicatedJobs {
		for slice := range rj.Replicas {
			for host := range *rj.Template.Spec.Completions {
				w.startPod(js, rj, slice, host)
			}
		}
	}
}

func (w *world) startPod(js *jobsetv1.JobSet, rj jobsetv1.ReplicatedJob, slice, host int32) {
	w.Helper()
	template := rj.Template.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace = js.Namespace
	pod.Name = fmt.Sprintf("%s-%s-%d-%d", js.Name, rj.Name, slice, host)
	if js.Status.Restarts > 0 {
		pod.Name += fmt.Sprintf("-%d", js.Status.Restarts)
	}
	pod.Labels = merge(pod.Labels, jobSetLabels(js, rj.Name, slice))
	pod.Labels[completionIndexLabel] = fmt.Sprint(host)
	pod.Spec.AutomountServiceAccountToken = new(bool)
	pod.Spec.Volumes = nil
	w.create(pod)
}

func jobSetLabels(js *jobsetv1.JobSet, rj string, slice int32) map[string]string {
	return map[string]string{
		jobsetv1.JobSetNameKey:        js.Name,
		jobsetv1.JobSetUIDKey:         string(js.UID),
		jobsetv1.ReplicatedJobNameKey: rj,
		jobsetv1.JobIndexKey:          fmt.Sprint(slice),
		jobset.RestartAttemptLabel:    fmt.Sprint(js.Status.Restarts),
	}
}

func merge(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

// setPods plays the kubelet: every pod of the JobSet whose name contains part gets that status.
func (w *world) setPods(js *jobsetv1.JobSet, part string, status corev1.PodStatus) {
	w.Helper()
	var pods corev1.PodList
	w.must(w.client.List(w.ctx, &pods, client.InNamespace(w.namespace), client.MatchingLabels{jobset.NameLabel: js.Name}))
	found := false
	for i := range pods.Items {
		if strings.Contains(pods.Items[i].Name, part) {
			found = true
			pods.Items[i].Status = *status.DeepCopy()
			w.must(w.client.Status().Update(w.ctx, &pods.Items[i]))
		}
	}
	if !found {
		w.Fatalf("no pod with %s in its name", part)
	}
}

func ready() corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
}

// finish plays the JobSet controller: a condition, and the terminal state that goes with it.
func (w *world) finish(js *jobsetv1.JobSet, kind jobsetv1.JobSetConditionType, reason, message string) {
	w.Helper()
	w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(js), js))
	js.Status.TerminalState = string(kind)
	meta.SetStatusCondition(&js.Status.Conditions, metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: reason, Message: message})
	w.must(w.client.Status().Update(w.ctx, js))
}

// sliceJob plays the JobSet controller: the Job of one slice, not yet created.
func (w *world) sliceJob(js *jobsetv1.JobSet, slice int32) *batchv1.Job {
	rj := js.Spec.ReplicatedJobs[1]
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace,
			Name:      fmt.Sprintf("%s-%s-%d", js.Name, rj.Name, slice),
			Labels:    merge(rj.Template.Labels, jobSetLabels(js, rj.Name, slice)),
		},
		Spec: *rj.Template.Spec.DeepCopy(),
	}
	job.Spec.Template.Spec.Volumes = nil
	return job
}
