package controller

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/topology"
)

// What the API server itself refuses, by the rules in the CustomResourceDefinition, and with which words.

func containers(names ...string) *corev1.PodTemplateSpec {
	template := &corev1.PodTemplateSpec{}
	for _, name := range names {
		template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: name, Image: "image"})
	}
	return template
}

func TestRefusedAtCreation(t *testing.T) {
	w := newWorld(t)
	for want, edit := range map[string]func(*v1.PathwaysJob){
		"longer than 22 characters":        func(j *v1.PathwaysJob) { j.Name = "pathways-user-with-23-c" },
		"must be a DNS label":              func(j *v1.PathwaysJob) { j.Name = "pathways.user" },
		"must be a DNS label, since":       func(j *v1.PathwaysJob) { j.Name = "1pathways" },
		"spec.maxRestarts":                 func(j *v1.PathwaysJob) { j.Spec.MaxRestarts = -1 },
		"numSlices must be at least 1":     func(j *v1.PathwaysJob) { j.Spec.Workers[0].NumSlices = 0 },
		"numSlices must be at most 100000": func(j *v1.PathwaysJob) { j.Spec.Workers[0].NumSlices = 100001 },
		"spec.workers":                     func(j *v1.PathwaysJob) { j.Spec.Workers = []v1.WorkerSpec{} },
		"Too many: 2": func(j *v1.PathwaysJob) {
			j.Spec.Workers = append(j.Spec.Workers, v1.WorkerSpec{Type: "ct6e-standard-4t", Topology: "2x2", NumSlices: 1})
		},
		`Unsupported value: "n1"`:          func(j *v1.PathwaysJob) { j.Spec.Workers[0].Type = "n1" },
		`Unsupported value: "gpu"`:         func(j *v1.PathwaysJob) { j.Spec.Workers[0].NodeKind = "gpu" },
		`Unsupported value: "somewhere"`:   func(j *v1.PathwaysJob) { j.Spec.Controller.DeploymentMode = "somewhere" },
		"must not be more than workers[0]": func(j *v1.PathwaysJob) { j.Spec.Controller.ElasticSlices = 3 },
		"must be the tag of an image":      func(j *v1.PathwaysJob) { j.Spec.PathwaysVersion = "a:b" },
		"mainContainerName must name":      func(j *v1.PathwaysJob) { j.Spec.Controller.Template = containers("a", "b") },
		"pathways-rm and pathways-proxy":   func(j *v1.PathwaysJob) { j.Spec.Controller.Template = containers("main", "pathways-rm") },
		"restartPolicy must be Never": func(j *v1.PathwaysJob) {
			j.Spec.Controller.Template = containers("main")
			j.Spec.Controller.Template.Spec.RestartPolicy = "Always"
		},
		"colocated_python_sidecar needs an": func(j *v1.PathwaysJob) {
			j.Spec.CustomComponents = []v1.CustomComponent{{ComponentType: v1.ComponentSidecar}}
		},
		"Duplicate value": func(j *v1.PathwaysJob) {
			j.Spec.CustomComponents = []v1.CustomComponent{{ComponentType: v1.ComponentWorker}, {ComponentType: v1.ComponentWorker}}
		},
		`"3x3x3" is not a topology of ct5p-hightpu-4t: possible are 2x2x1, 2x2x2, 2x2x4, 2x4x4, and every AxBxC of multiples of 4 with A <= B <= C and at most 8960 chips`: func(j *v1.PathwaysJob) { j.Spec.Workers[0].Topology = "3x3x3" },
		`"4x4x4" is not a topology of ct6e-standard-8t: possible is 2x4`: func(j *v1.PathwaysJob) {
			j.Spec.Workers[0].Type = "ct6e-standard-8t"
			j.Spec.Workers[0].Topology = "4x4x4"
		},
		`"1x1" is not a topology of ct5lp-hightpu-4t: possible is 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16`: func(j *v1.PathwaysJob) {
			j.Spec.Workers[0].Type = "ct5lp-hightpu-4t"
			j.Spec.Workers[0].Topology = "1x1"
		},
		`"2x2x2" is not a topology of ct6e-standard-4t: possible is 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16`: func(j *v1.PathwaysJob) { j.Spec.Workers[0].Type = "ct6e-standard-4t" },
	} {
		job := w.job("pathways-user")
		edit(job)
		if err := w.client.Create(w.ctx, job, client.DryRunAll); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestAccepted(t *testing.T) {
	w := newWorld(t)
	for name, edit := range map[string]func(*v1.PathwaysJob){
		"the document's":                  func(*v1.PathwaysJob) {},
		"22 characters":                   func(j *v1.PathwaysJob) { j.Name = "pathways-user-with-22c" },
		"one container of any name":       func(j *v1.PathwaysJob) { j.Spec.Controller.Template = containers("jax-tpu") },
		"several, one of them main":       func(j *v1.PathwaysJob) { j.Spec.Controller.Template = containers("logs", "main") },
		"all slices may be missing":       func(j *v1.PathwaysJob) { j.Spec.Controller.ElasticSlices = 2 },
		"next to each other":              func(j *v1.PathwaysJob) { j.Spec.Controller.DeploymentMode = v1.DeploymentColocated },
		"a version":                       func(j *v1.PathwaysJob) { j.Spec.PathwaysVersion = "jax-0.10.2" },
		"no directory, as in sloppy ones": func(j *v1.PathwaysJob) { j.Spec.PathwaysDir = "" },
	} {
		job := w.job("pathways-user")
		edit(job)
		if err := w.client.Create(w.ctx, job, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if job.Spec.Controller.MainContainerName != "main" || job.Spec.Workers[0].MaxSliceRestarts != 1 {
			t.Errorf("%s: defaults are missing: %+v", name, job.Spec)
		}
	}
}

func TestWhatCannotBeChangedIsRefusedByName(t *testing.T) {
	w := newWorld(t)
	job := w.job("fixed")
	job.Spec.Controller.Template = containers("main", "other")
	job.Spec.CustomComponents = []v1.CustomComponent{{ComponentType: v1.ComponentWorker, CustomFlags: []string{"--a"}}}
	w.create(job)
	for want, edits := range map[string][]func(*v1.PathwaysJob){
		"spec.maxRestarts: Invalid value: \"object\": maxRestarts is immutable": {func(j *v1.PathwaysJob) { j.Spec.MaxRestarts = 2 }, func(j *v1.PathwaysJob) { j.Spec.MaxRestarts = 0 }},
		"pathwaysDir is immutable":                                       {func(j *v1.PathwaysJob) { j.Spec.PathwaysDir = "gs://other" }, func(j *v1.PathwaysJob) { j.Spec.PathwaysDir = "" }},
		"pathwaysVersion is immutable":                                   {func(j *v1.PathwaysJob) { j.Spec.PathwaysVersion = "v2" }},
		"spec.workers: Invalid value: \"object\": workers are immutable": {func(j *v1.PathwaysJob) { j.Spec.Workers[0].NumSlices = 3 }, func(j *v1.PathwaysJob) { j.Spec.Workers[0].Topology = "2x2x4" }},
		"custom components are immutable":                                {func(j *v1.PathwaysJob) { j.Spec.CustomComponents = nil }, func(j *v1.PathwaysJob) { j.Spec.CustomComponents[0].CustomFlags[0] = "--b" }},
		"hostNetwork is immutable":                                       {func(j *v1.PathwaysJob) { j.Spec.HostNetwork = true }},
		"deploymentMode is immutable":                                    {func(j *v1.PathwaysJob) { j.Spec.Controller.DeploymentMode = v1.DeploymentColocated }},
		"enableMetricsCollection is immutable":                           {func(j *v1.PathwaysJob) { j.Spec.Controller.EnableMetricsCollection = true }},
		"elasticSlices is immutable":                                     {func(j *v1.PathwaysJob) { j.Spec.Controller.ElasticSlices = 1 }},
		"mainContainerName is immutable":                                 {func(j *v1.PathwaysJob) { j.Spec.Controller.MainContainerName = "other" }},
		"spec.controller.template: Invalid value: \"object\": userPodTemplate is immutable": {func(j *v1.PathwaysJob) { j.Spec.Controller.Template = nil }, func(j *v1.PathwaysJob) { j.Spec.Controller.Template.Spec.Containers[0].Image = "other" }, func(j *v1.PathwaysJob) { j.Spec.Controller.Template.Labels = map[string]string{"a": "b"} }},
	} {
		for _, edit := range edits {
			changed := job.DeepCopy()
			edit(changed)
			patch := client.MergeFrom(job)
			if err := w.client.Patch(w.ctx, changed, patch, client.DryRunAll); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	}
	same := job.DeepCopy()
	same.Labels = map[string]string{"a": "b"}
	if err := w.client.Patch(w.ctx, same, client.MergeFrom(job)); err != nil {
		t.Error("labels may change:", err)
	}
}

// The API server's rules for topologies are the operator's (and so, by that package's test, the resource manager's).
func TestTheAPIServerKnowsAllTopologies(t *testing.T) {
	w := newWorld(t)
	type candidate struct {
		machine  v1.MachineType
		topology string
	}
	candidates := make(chan candidate)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for c := range candidates {
				job := w.job("t")
				job.Spec.Workers[0].Type, job.Spec.Workers[0].Topology = c.machine, c.topology
				_, want := topology.Parse(c.machine, c.topology)
				if got := w.client.Create(w.ctx, job, client.DryRunAll); (got == nil) != (want == nil) {
					t.Errorf("%s %q: the operator says %v, the API server %v", c.machine, c.topology, want, got)
				}
			}
		})
	}
	for _, machine := range topology.Machines() {
		known := map[string]bool{"": true, "x": true, "2x2": true, "8x8x4": true, "04x4x4": true, "4x4x0": true, "996x996x996": true,
			"4x4x4x4": true, "4x4x4\n": true, "1x1x1": true, "2x2x8": true, "1x1": true, "4x2": true}
		for _, slice := range machine.All() {
			known[slice.Topology] = true
			if slice.Hosts%7 == 1 { // its neighbours: too large, in the wrong order, not of whole cubes
				var a, b, c int
				if n, _ := fmt.Sscanf(slice.Topology, "%dx%dx%d", &a, &b, &c); n == 3 {
					known[fmt.Sprintf("%dx%dx%d", a, b, c+4)] = true
					known[fmt.Sprintf("%dx%dx%d", c, b, a)] = true
					known[fmt.Sprintf("%dx%dx%d", a, b, c+2)] = true
				}
			}
		}
		for t := range known {
			candidates <- candidate{machine.Type, t}
		}
	}
	close(candidates)
	workers.Wait()
}
