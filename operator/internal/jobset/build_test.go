package jobset

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/topology"
)

var update = flag.Bool("update", false, "write the files under testdata anew")

var defaults = Defaults{ImageRepository: "ghcr.io/openpathways", Version: "v0.4.0", NodeKind: v1.NodeKindCPU}

func read(t *testing.T, name string) *v1.PathwaysJob {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	job := &v1.PathwaysJob{}
	if err := yaml.UnmarshalStrict(content, job); err != nil {
		t.Fatal(err)
	}
	return job
}

func build(t *testing.T, job *v1.PathwaysJob) *jobsetv1.JobSet {
	t.Helper()
	js, err := Build(job, defaults)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Each testdata/NAME.in.yaml gives exactly NAME.out.yaml: the JobSet as 'kubectl get -o yaml' would show it.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatal(err, "no inputs")
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := read(t, name)
			before := job.DeepCopy()
			got, err := yaml.Marshal(build(t, job))
			if err != nil {
				t.Fatal(err)
			}
			if again, err := yaml.Marshal(build(t, before)); err != nil || string(again) != string(got) {
				t.Error("Build changes its input, or its result changes from call to call", err)
			}
			output := filepath.Join("testdata", name+".out.yaml")
			if *update {
				if err := os.WriteFile(output, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("the JobSet is not that of %s; see what 'go test ./internal/jobset -update' changes", output)
			}
		})
	}
}

// What launchers, clients and servers rely on, said once in words; the golden files hold the rest.

func podOf(js *jobsetv1.JobSet, job int) corev1.PodSpec {
	return js.Spec.ReplicatedJobs[job].Template.Spec.Template.Spec
}

func TestTheDocumentsJob(t *testing.T) {
	js := build(t, read(t, "document"))
	if js.Name != "pathways-user" || js.Spec.ReplicatedJobs[0].Name != "pathways-head" || js.Spec.ReplicatedJobs[1].Name != "pathways-workers" {
		t.Error("names differ from the document's")
	}
	head, worker := podOf(js, 0), podOf(js, 1)
	if len(head.Containers) != 2 || head.Containers[0].Name != "pathways-rm" || head.Containers[1].Name != "pathways-proxy" || len(head.InitContainers) != 0 {
		t.Error("the head must be 2/2: pathways-rm, pathways-proxy")
	}
	if len(worker.Containers) != 1 || worker.Containers[0].Name != "pathways-worker" {
		t.Error("a worker must be 1/1")
	}
	if js.Spec.ReplicatedJobs[1].Replicas != 2 || *js.Spec.ReplicatedJobs[1].Template.Spec.Completions != 2 {
		t.Error("two slices of two hosts")
	}
	if js.Spec.SuccessPolicy != nil {
		t.Error("nothing ends a headless job with success")
	}
	if head.Containers[0].Image != "ghcr.io/openpathways/server:v0.4.0" || worker.Containers[0].Image != head.Containers[0].Image ||
		head.Containers[1].Image != "ghcr.io/openpathways/proxy_server:v0.4.0" {
		t.Error("images")
	}
	wantArgs := []string{"--server_port=29001", "--gcs_scratch_location=gs://bucket", "--node_type=resource_manager", "--instance_count=2", "--instance_type=tpuv5:2x2x2"}
	if !slices.Equal(head.Containers[0].Args, wantArgs) {
		t.Error("resource manager's arguments:", head.Containers[0].Args)
	}
	if Address(read(t, "document")) != "grpc://pathways-user-pathways-head-0-0.pathways-user.default.svc:29000" {
		t.Error(Address(read(t, "document")))
	}
}

func TestCPUNodesAskForNothingOfATPU(t *testing.T) {
	js := build(t, read(t, "document"))
	text, err := yaml.Marshal(js)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"google.com", "exclusive-topology", "hostNetwork", "hostPath", "tolerations"} {
		if strings.Contains(string(text), word) {
			t.Errorf("%s in a JobSet for CPU nodes", word)
		}
	}
	cpu, memory := int64(0), int64(0)
	for i, rj := range js.Spec.ReplicatedJobs {
		for _, c := range podOf(js, i).Containers {
			pods := int64(rj.Replicas) * int64(*rj.Template.Spec.Parallelism)
			cpu += pods * c.Resources.Requests.Cpu().MilliValue()
			memory += pods * c.Resources.Requests.Memory().Value()
		}
	}
	if cpu > 1000 || memory > 4<<30 {
		t.Errorf("two slices of two hosts request %d mCPU and %d bytes: too much for a node of 2 CPUs with other things on it", cpu, memory)
	}
}

func TestTheUsersProgram(t *testing.T) {
	js := build(t, read(t, "tpu-batch"))
	pod := podOf(js, 0)
	var names []string
	for _, c := range pod.InitContainers {
		names = append(names, c.Name)
		if sidecar := strings.HasPrefix(c.Name, "pathways-"); sidecar != (c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways) {
			t.Error(c.Name, "must be a sidecar exactly if it is ours")
		}
	}
	if !slices.Equal(names, []string{"fetch", "pathways-rm", "pathways-proxy"}) {
		t.Error(names)
	}
	env := map[string]string{}
	for _, e := range pod.Containers[1].Env {
		env[e.Name] = e.Value
	}
	if env["JAX_PLATFORMS"] != "proxy,cpu" || env["JAX_BACKEND_TARGET"] != "grpc://$(PATHWAYS_HEAD):38681" ||
		env["IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"] != "true" || env["XCLOUD_ENVIRONMENT"] != "GCP" {
		t.Error(env)
	}
	if len(pod.Containers[0].Env) != 0 {
		t.Error("only the main container is connected")
	}
	if pod.RestartPolicy != corev1.RestartPolicyNever || *js.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit != 0 {
		t.Error("the program's exit code must decide at once")
	}
	if !slices.Equal(js.Spec.SuccessPolicy.TargetReplicatedJobs, []string{"pathways-head"}) {
		t.Error("success is the program's")
	}
	template := js.Spec.ReplicatedJobs[0].Template.Spec.Template
	if template.Labels["app"] != "trainer" || template.Annotations["example.com/own"] == "" || template.Annotations["example.com/note"] != "kept" {
		t.Error("the template's own labels and annotations are kept, the PathwaysJob's annotations added")
	}
	if _, there := js.Annotations["kubectl.kubernetes.io/last-applied-configuration"]; there || js.Labels["kueue.x-k8s.io/queue-name"] != "multislice-queue" {
		t.Error("labels and annotations of the JobSet", js.Labels, js.Annotations)
	}
	proxy := pod.InitContainers[2]
	if proxy.Args[len(proxy.Args)-1] != "--num_elastic_slices=1" || proxy.StartupProbe.GRPC.Port != 38681 || proxy.Ports[0].ContainerPort != 38681 {
		t.Error("the proxy's port follows its flag", proxy.Args)
	}
}

func TestWorkersMayFailOften(t *testing.T) {
	limit := func(edit func(*v1.PathwaysJob)) int32 {
		job := read(t, "document")
		edit(job)
		return *build(t, job).Spec.ReplicatedJobs[1].Template.Spec.BackoffLimit
	}
	if n := limit(func(*v1.PathwaysJob) {}); n != 200 {
		t.Error("not elastic:", n)
	}
	elastic := func(restarts int32) func(*v1.PathwaysJob) {
		return func(job *v1.PathwaysJob) {
			job.Spec.Controller.ElasticSlices, job.Spec.Workers[0].MaxSliceRestarts = 1, restarts
		}
	}
	if n := limit(elastic(3)); n != 6 {
		t.Error("elastic:", n)
	}
	if n := limit(elastic(2_000_000_000)); n != 1<<31-1 {
		t.Error("does not fit an int32:", n)
	}
}

func TestThePortIsTheLastFlags(t *testing.T) {
	for _, test := range []struct {
		flags []string
		want  int32
	}{
		{nil, 29000},
		{[]string{"--server_port=1"}, 1},
		{[]string{"--server_port=1", "--server_port", "'2'"}, 2},
		{[]string{"-server_port=3"}, 3},
		{[]string{"--server_port=many"}, 29000},
		{[]string{"--other_server_port=4"}, 29000},
		{[]string{"--server_port=70000"}, 29000},
	} {
		job := read(t, "document")
		job.Spec.CustomComponents = []v1.CustomComponent{{ComponentType: v1.ComponentProxy, CustomFlags: test.flags}}
		b := builder{job: job}
		if got := b.port(v1.ComponentProxy, proxyPort); got != test.want {
			t.Errorf("%v: port %d, want %d", test.flags, got, test.want)
		}
	}
}

func TestEveryMachineAndTopology(t *testing.T) {
	for _, machine := range topology.Machines() {
		for _, slice := range machine.All() {
			job := read(t, "document")
			job.Spec.Workers[0].Type, job.Spec.Workers[0].Topology = machine.Type, slice.Topology
			workers := build(t, job).Spec.ReplicatedJobs[1].Template.Spec
			if *workers.Completions != slice.Hosts || *workers.Parallelism != slice.Hosts || *workers.BackoffLimit < slice.Hosts {
				t.Errorf("%s %s: %d hosts", machine.Type, slice.Topology, *workers.Completions)
			}
		}
	}
}

func TestWhatCannotBeBuilt(t *testing.T) {
	for want, edit := range map[string]func(*v1.PathwaysJob){
		"spec.workers must have one entry": func(j *v1.PathwaysJob) { j.Spec.Workers = nil },
		"is not a topology":                func(j *v1.PathwaysJob) { j.Spec.Workers[0].Topology = "3x3x3" },
		"no container named \"main\"": func(j *v1.PathwaysJob) {
			j.Spec.Controller.MainContainerName = "main"
			j.Spec.Controller.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
		},
	} {
		job := read(t, "document")
		edit(job)
		if _, err := Build(job, defaults); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
