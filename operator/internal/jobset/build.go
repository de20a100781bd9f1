// Package jobset builds the JobSet of a PathwaysJob. It is a pure function of the object and the operator's defaults.
package jobset

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/topology"
)

// Names that people's commands and other programs look for.
const (
	HeadJob         = "pathways-head"
	WorkersJob      = "pathways-workers"
	RMContainer     = "pathways-rm"
	ProxyContainer  = "pathways-proxy"
	WorkerContainer = "pathways-worker"
	SidecarName     = "colocated-python-sidecar"

	// NameLabel is on all pods: the PathwaysJob's name.
	NameLabel = "pathways-job.pathways.domain/name"

	// RestartAttemptLabel is put on all pods by JobSet: how often the JobSet had been restarted when it made the pod.
	RestartAttemptLabel = "jobset.sigs.k8s.io/restart-attempt"
)

// Default ports; --server_port among the custom flags changes them.
const (
	proxyPort   = 29000
	rmPort      = 29001
	workerPort  = 29005
	sidecarPort = 50051
)

const (
	tpuResource       = corev1.ResourceName("google.com/tpu")
	acceleratorLabel  = "cloud.google.com/gke-tpu-accelerator"
	topologyLabel     = "cloud.google.com/gke-tpu-topology"
	nodePoolLabel     = "cloud.google.com/gke-nodepool"
	containerUser     = 65532 // the usual number for "nobody in particular"; any works with our images
	sharedTmp         = "shared-tmp"
	healthServiceLive = ""      // the process serves
	healthServiceRead = "ready" // and does its work
)

// A slice's Job fails, and the JobSet's failure policy acts, after this many failures for each of its hosts. Kubernetes
// counts failed pods and in-place restarts of containers alike, so the number is far above what a long interactive
// session collects, and low enough for a worker that cannot run to be given up after some hours of ever rarer tries.
const failuresPerHost = 100

// The head gets its signal this many seconds late when its pod is deleted. Kubernetes counts a deleted pod as failed
// unless it has ended with success before the Job controller looks, about once a second: a head that leaves cleanly at
// once would count as having done its work, and never come back.
const leaveLate = 3

// Defaults are the operator's flags.
type Defaults struct {
	ImageRepository string
	Version         string
	NodeKind        v1.NodeKind
	ImagePullPolicy corev1.PullPolicy // empty: Kubernetes' default
}

// builder holds what the parts of one JobSet share.
type builder struct {
	job      *v1.PathwaysJob
	defaults Defaults
	workers  v1.WorkerSpec
	slice    topology.Slice
	nodeKind v1.NodeKind
}

// Build returns the JobSet that the PathwaysJob asks for, without an owner reference. It fails only for what the API
// server should have refused.
func Build(job *v1.PathwaysJob, defaults Defaults) (*jobsetv1.JobSet, error) {
	if len(job.Spec.Workers) != 1 {
		return nil, fmt.Errorf("spec.workers must have one entry, not %d", len(job.Spec.Workers))
	}
	workers := job.Spec.Workers[0]
	slice, err := topology.Parse(workers.Type, workers.Topology)
	if err != nil {
		return nil, fmt.Errorf("spec.workers[0].topology: %w", err)
	}
	b := builder{job: job, defaults: defaults, workers: workers, slice: slice, nodeKind: workers.NodeKind}
	if b.nodeKind == "" {
		b.nodeKind = defaults.NodeKind
	}
	head, err := b.head()
	if err != nil {
		return nil, err
	}

	js := &jobsetv1.JobSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:        job.Name,
			Namespace:   job.Namespace,
			Labels:      maps.Clone(job.Labels),
			Annotations: b.annotations(),
		},
		Spec: jobsetv1.JobSetSpec{
			StartupPolicy: &jobsetv1.StartupPolicy{StartupPolicyOrder: jobsetv1.InOrder},
			FailurePolicy: &jobsetv1.FailurePolicy{
				MaxRestarts: job.Spec.MaxRestarts,
				// Nothing of the last run is left when the next one starts: its workers would still find the new head
				// under the old name.
				RestartStrategy: jobsetv1.BlockingRecreate,
			},
			Coordinator: &jobsetv1.Coordinator{ReplicatedJob: HeadJob},
			ReplicatedJobs: []jobsetv1.ReplicatedJob{
				{Name: HeadJob, Replicas: 1, Template: head},
				{Name: WorkersJob, Replicas: workers.NumSlices, Template: b.workersJob()},
			},
		},
	}
	if job.Spec.Controller.Template != nil {
		js.Spec.SuccessPolicy = &jobsetv1.SuccessPolicy{Operator: jobsetv1.OperatorAll, TargetReplicatedJobs: []string{HeadJob}}
	}
	return js, nil
}

// Hosts is the number of hosts of each slice; 0 if the spec is not legal.
func Hosts(job *v1.PathwaysJob) int32 {
	if len(job.Spec.Workers) == 0 {
		return 0
	}
	slice, err := topology.Parse(job.Spec.Workers[0].Type, job.Spec.Workers[0].Topology)
	if err != nil {
		return 0
	}
	return slice.Hosts
}

// Address is what JAX_BACKEND_TARGET is to be inside the job's Kubernetes cluster. It holds from the moment that the
// JobSet exists: a client that comes early waits for the name.
func Address(job *v1.PathwaysJob) string {
	b := builder{job: job}
	return fmt.Sprintf("grpc://%s-%s-0-0.%s.%s.svc:%d", job.Name, HeadJob, job.Name, job.Namespace,
		b.port(v1.ComponentProxy, proxyPort))
}

// ---- the head ----------------------------------------------------------------------------------------------------

func (b *builder) head() (batchv1.JobTemplateSpec, error) {
	annotations := b.annotations()
	exclusive := b.nodeKind == v1.NodeKindTPU && !b.colocated()
	if exclusive {
		annotations[jobsetv1.ExclusiveKey] = corev1.LabelHostname // one head a node
	}

	var pod corev1.PodTemplateSpec
	if template := b.job.Spec.Controller.Template; template != nil {
		pod = *template.DeepCopy()
		if err := b.addToUsersPod(&pod.Spec); err != nil {
			return batchv1.JobTemplateSpec{}, err
		}
	} else {
		pod.Spec = b.serverPod([]corev1.Container{b.resourceManager(), b.proxy()})
		for i := range pod.Spec.Containers {
			late := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: leaveLate}}
			pod.Spec.Containers[i].Lifecycle = &corev1.Lifecycle{PreStop: late}
		}
	}
	pod.Annotations = merged(annotations, pod.Annotations)
	pod.Labels = merged(pod.Labels, map[string]string{NameLabel: b.job.Name})
	if b.colocated() && b.nodeKind == v1.NodeKindTPU {
		pod.Spec.NodeSelector = merged(pod.Spec.NodeSelector, b.tpuNodes())
	}
	return b.jobTemplate(annotations, pod, 1, 0), nil
}

// addToUsersPod puts the servers in front of the user's program, as sidecars: they are ready before it starts, and end
// when it ends.
func (b *builder) addToUsersPod(pod *corev1.PodSpec) error {
	main, err := b.mainContainer(pod)
	if err != nil {
		return err
	}
	for _, server := range []corev1.Container{b.resourceManager(), b.proxy()} {
		server.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.InitContainers = append(pod.InitContainers, server)
	}
	if pod.RestartPolicy == "" {
		pod.RestartPolicy = corev1.RestartPolicyNever // the program's exit code decides at once
	}
	for _, env := range []corev1.EnvVar{
		fromLabel("PATHWAYS_HEAD", jobsetv1.CoordinatorKey),
		{Name: "JAX_PLATFORMS", Value: "proxy"},
		{Name: "XCLOUD_ENVIRONMENT", Value: "GCP"},
		{Name: "JAX_BACKEND_TARGET", Value: fmt.Sprintf("grpc://$(PATHWAYS_HEAD):%d", b.port(v1.ComponentProxy, proxyPort))},
		{Name: "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", Value: "true"},
	} {
		if !slices.ContainsFunc(main.Env, func(e corev1.EnvVar) bool { return e.Name == env.Name }) { // the user's own wins
			main.Env = append(main.Env, env)
		}
	}
	return nil
}

func (b *builder) mainContainer(pod *corev1.PodSpec) (*corev1.Container, error) {
	name := b.job.Spec.Controller.MainContainerName
	for i := range pod.Containers {
		if pod.Containers[i].Name == name || len(pod.Containers) == 1 {
			return &pod.Containers[i], nil
		}
	}
	return nil, fmt.Errorf("spec.controller.mainContainerName: the template has no container named %q", name)
}

func (b *builder) resourceManager() corev1.Container {
	c := v1.ComponentResourceManager
	port := b.port(c, rmPort)
	args := []string{
		"--server_port=" + strconv.Itoa(rmPort),
		"--gcs_scratch_location=" + b.job.Spec.PathwaysDir,
		"--node_type=resource_manager",
		"--instance_count=" + strconv.Itoa(int(b.workers.NumSlices)),
		"--instance_type=" + b.slice.InstanceType(),
	}
	env := []corev1.EnvVar{
		fromAnnotation("REPLICATED_JOB_NAME", jobsetv1.ReplicatedJobNameKey),
		fromAnnotation("JOBSET_NAME", jobsetv1.JobSetNameKey),
		fromLabel("HOST_ADDRESS", jobsetv1.CoordinatorKey),
		{Name: "TPU_SKIP_MDS_QUERY", Value: "true"},
	}
	container := b.server(c, RMContainer, "server", args, env, port, 29002)
	b.setResources(&container, c, limits("8", "32000000000"), requests("50m", "128Mi"))
	b.setProbes(&container, c, port)
	return container
}

func (b *builder) proxy() corev1.Container {
	c := v1.ComponentProxy
	port := b.port(c, proxyPort)
	args := []string{
		"--server_port=" + strconv.Itoa(proxyPort),
		b.resourceManagerAddress(),
		"--gcs_scratch_location=" + b.job.Spec.PathwaysDir,
	}
	if b.custom(v1.ComponentSidecar) != nil {
		args = append(args, "--sidecar_name=external")
	}
	env := []corev1.EnvVar{fromLabel("PATHWAYS_HEAD", jobsetv1.CoordinatorKey)}
	container := b.server(c, ProxyContainer, "proxy_server", args, env, port)
	if n := b.job.Spec.Controller.ElasticSlices; n > 0 {
		container.Args = append(container.Args, fmt.Sprintf("--num_elastic_slices=%d", n))
	}
	b.setResources(&container, c, limits("16", "100000000000"), requests("100m", "256Mi"))
	b.setProbes(&container, c, port)
	return container
}

// ---- the workers -------------------------------------------------------------------------------------------------

func (b *builder) workersJob() batchv1.JobTemplateSpec {
	pod := corev1.PodTemplateSpec{Spec: b.serverPod([]corev1.Container{b.worker()})}
	pod.Spec.NodeSelector = maps.Clone(b.workers.NodeSelector)
	pod.Spec.TerminationGracePeriodSeconds = b.workers.TerminationGracePeriodSeconds
	pod.Spec.PriorityClassName = b.workers.PriorityClassName
	pod.Annotations = b.annotations()
	pod.Labels = map[string]string{NameLabel: b.job.Name}

	if b.nodeKind == v1.NodeKindTPU {
		pod.Spec.NodeSelector = merged(pod.Spec.NodeSelector, b.tpuNodes())
		pod.Spec.Tolerations = []corev1.Toleration{{Key: string(tpuResource), Operator: corev1.TolerationOpExists}}
		if b.colocated() {
			pod.Spec.Affinity = b.nextToHead() // which exclusive placement would forbid
		} else {
			pod.Annotations[jobsetv1.ExclusiveKey] = nodePoolLabel // one slice a node pool
		}
	}
	if sidecar := b.custom(v1.ComponentSidecar); sidecar != nil {
		pod.Spec.InitContainers = []corev1.Container{b.sidecar(sidecar)}
	}
	if volume := b.sharedTmp(); volume != nil {
		pod.Spec.Volumes = []corev1.Volume{*volume}
		mount := corev1.VolumeMount{Name: sharedTmp, MountPath: "/tmp"}
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				containers[i].VolumeMounts = append(containers[i].VolumeMounts, mount)
			}
		}
	}

	failures := int64(failuresPerHost)
	if b.job.Spec.Controller.ElasticSlices > 0 && b.workers.MaxSliceRestarts > 0 {
		failures = int64(b.workers.MaxSliceRestarts)
	}
	backoffLimit := int32(min(failures*int64(b.slice.Hosts), math.MaxInt32))
	return b.jobTemplate(b.annotations(), pod, b.slice.Hosts, backoffLimit)
}

func (b *builder) worker() corev1.Container {
	c := v1.ComponentWorker
	port := b.port(c, workerPort)
	args := []string{
		"--server_port=" + strconv.Itoa(workerPort),
		b.resourceManagerAddress(),
		"--gcs_scratch_location=" + b.job.Spec.PathwaysDir,
	}
	if b.workers.Plugin != "" {
		args = append(args, "--plugin="+b.workers.Plugin)
	}
	env := []corev1.EnvVar{
		{Name: "TPU_MIN_LOG_LEVEL", Value: "0"},
		{Name: "TF_CPP_MIN_LOG_LEVEL", Value: "0"},
		{Name: "XCLOUD_ENVIRONMENT", Value: "GCP"},
		{Name: "MEGASCALE_GRPC_ENABLE_XOR_TRACER", Value: "false"},
		fromLabel("MEGASCALE_NUM_SLICES", jobsetv1.ReplicatedJobReplicas),
		fromAnnotation("JOBSET_NAME", jobsetv1.JobSetNameKey),
		fromAnnotation("REPLICATED_JOB_NAME", jobsetv1.ReplicatedJobNameKey),
		fromLabel("MEGASCALE_SLICE_ID", jobsetv1.JobIndexKey),
		fromLabel("PATHWAYS_HEAD", jobsetv1.CoordinatorKey),
		fromLabel("MEGASCALE_COORDINATOR_ADDRESS", jobsetv1.CoordinatorKey),
	}
	container := b.server(c, WorkerContainer, "server", args, env, port, 29006, 8471, 8080)
	chips := corev1.ResourceList{tpuResource: *resource.NewQuantity(int64(b.slice.Machine.ChipsPerHost), resource.DecimalSI)}
	b.setResources(&container, c, corev1.ResourceRequirements{Limits: chips}, requests("100m", "256Mi"))
	if b.nodeKind == v1.NodeKindTPU {
		// Device files are root's there, and what a plugin needs is not known here: the image decides.
		container.SecurityContext = nil
		container.Resources.Limits = merged(chips, container.Resources.Limits)
	}
	b.setProbes(&container, c, port)
	return container
}

// sidecar is the container for colocated Python: it runs as the image says, with the worker's /tmp.
func (b *builder) sidecar(custom *v1.CustomComponent) corev1.Container {
	container := corev1.Container{
		Name:            SidecarName,
		Image:           custom.Image,
		ImagePullPolicy: b.pullPolicy(v1.ComponentSidecar),
		Args:            slices.Clone(custom.CustomFlags),
		Env: append([]corev1.EnvVar{
			{Name: "GRPC_SERVER_ADDRESS", Value: fmt.Sprintf("0.0.0.0:%d", sidecarPort)},
			{Name: "PYTHONUNBUFFERED", Value: "1"},
		}, custom.CustomEnv...),
		Ports:         []corev1.ContainerPort{{ContainerPort: sidecarPort, Protocol: corev1.ProtocolTCP}},
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
	}
	b.setResources(&container, v1.ComponentSidecar, corev1.ResourceRequirements{}, corev1.ResourceRequirements{})
	return container
}

// sharedTmp is where worker and sidecar, and on TPU nodes the TPU runtime's own tools, meet.
func (b *builder) sharedTmp() *corev1.Volume {
	switch {
	case b.nodeKind == v1.NodeKindTPU:
		host := &corev1.HostPathVolumeSource{Path: "/tmp", Type: ptr.To(corev1.HostPathDirectoryOrCreate)}
		return &corev1.Volume{Name: sharedTmp, VolumeSource: corev1.VolumeSource{HostPath: host}}
	case b.custom(v1.ComponentSidecar) != nil:
		return &corev1.Volume{Name: sharedTmp, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	}
	return nil
}

func (b *builder) tpuNodes() map[string]string {
	return map[string]string{acceleratorLabel: b.slice.Machine.Accelerator, topologyLabel: b.slice.Topology}
}

// nextToHead keeps the workers in the head's node pool, and other jobs out of it.
func (b *builder) nextToHead() *corev1.Affinity {
	term := func(requirements ...metav1.LabelSelectorRequirement) []corev1.PodAffinityTerm {
		return []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements},
			TopologyKey:   nodePoolLabel,
		}}
	}
	name := []string{b.job.Name}
	return &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(
			metav1.LabelSelectorRequirement{Key: jobsetv1.JobSetNameKey, Operator: metav1.LabelSelectorOpIn, Values: name},
		)},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(
			metav1.LabelSelectorRequirement{Key: jobsetv1.JobSetNameKey, Operator: metav1.LabelSelectorOpNotIn, Values: name},
			metav1.LabelSelectorRequirement{Key: batchv1.JobNameLabel, Operator: metav1.LabelSelectorOpExists},
		)},
	}
}

// ---- what all have in common ---------------------------------------------------------------------------------------

func (b *builder) colocated() bool {
	return b.job.Spec.Controller.DeploymentMode == v1.DeploymentColocated
}

// jobTemplate: a failure beyond backoffLimit fails the Job, and then the JobSet's failure policy acts. The head has none
// to spare: with it goes all that clients know, so its loss, however small, is a restart of the whole job.
func (b *builder) jobTemplate(annotations map[string]string, pod corev1.PodTemplateSpec, pods, backoffLimit int32) batchv1.JobTemplateSpec {
	return batchv1.JobTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations, Labels: map[string]string{NameLabel: b.job.Name}},
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion),
			Completions:    ptr.To(pods),
			Parallelism:    ptr.To(pods),
			BackoffLimit:   ptr.To(backoffLimit),
			Template:       pod,
		},
	}
}

// serverPod is a pod of our servers alone.
func (b *builder) serverPod(containers []corev1.Container) corev1.PodSpec {
	pod := corev1.PodSpec{
		Containers:                   containers,
		RestartPolicy:                corev1.RestartPolicyOnFailure,
		AutomountServiceAccountToken: ptr.To(false), // they never talk to Kubernetes
		EnableServiceLinks:           ptr.To(false),
	}
	if b.job.Spec.HostNetwork {
		pod.HostNetwork = true
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	return pod
}

func (b *builder) server(component v1.ComponentType, name, image string, args []string, env []corev1.EnvVar, ports ...int32) corev1.Container {
	if b.job.Spec.Controller.EnableMetricsCollection {
		args = append(args, "--enable_metrics_collection=true")
	}
	container := corev1.Container{
		Name:            name,
		Image:           fmt.Sprintf("%s/%s:%s", b.defaults.ImageRepository, image, b.version()),
		ImagePullPolicy: b.pullPolicy(component),
		Args:            args,
		Env:             env,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			RunAsNonRoot:             ptr.To(true),
			RunAsUser:                ptr.To[int64](containerUser),
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	for _, port := range ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{ContainerPort: port, Protocol: corev1.ProtocolTCP})
	}
	if custom := b.custom(component); custom != nil {
		if custom.Image != "" {
			container.Image = custom.Image
		}
		container.Args = append(container.Args, custom.CustomFlags...)
		container.Env = append(container.Env, custom.CustomEnv...)
	}
	return container
}

func (b *builder) version() string {
	if b.job.Spec.PathwaysVersion != "" {
		return b.job.Spec.PathwaysVersion
	}
	return b.defaults.Version
}

func (b *builder) pullPolicy(component v1.ComponentType) corev1.PullPolicy {
	if custom := b.custom(component); custom != nil && custom.ImagePullPolicy != "" {
		return custom.ImagePullPolicy
	}
	return b.defaults.ImagePullPolicy
}

func (b *builder) setResources(container *corev1.Container, component v1.ComponentType, tpu, cpu corev1.ResourceRequirements) {
	container.Resources = cpu
	if b.nodeKind == v1.NodeKindTPU {
		container.Resources = tpu
	}
	if custom := b.custom(component); custom != nil && custom.Resources != nil {
		container.Resources = *custom.Resources.DeepCopy()
	}
}

// setProbes asks the server's own health service (grpc.health.v1).
func (b *builder) setProbes(container *corev1.Container, component v1.ComponentType, port int32) {
	if custom := b.custom(component); custom != nil && custom.DisableProbes {
		return
	}
	probe := func(service string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: ptr.To(service)}},
			PeriodSeconds:    period,
			TimeoutSeconds:   5,
			FailureThreshold: failures,
		}
	}
	container.StartupProbe = probe(healthServiceLive, 1, 600) // ten minutes: loading a plugin may take long
	container.ReadinessProbe = probe(healthServiceRead, 5, 2)
	container.LivenessProbe = probe(healthServiceLive, 20, 6)
}

func (b *builder) custom(component v1.ComponentType) *v1.CustomComponent {
	for i := range b.job.Spec.CustomComponents {
		if b.job.Spec.CustomComponents[i].ComponentType == component {
			return &b.job.Spec.CustomComponents[i]
		}
	}
	return nil
}

func (b *builder) resourceManagerAddress() string {
	return fmt.Sprintf("--resource_manager_address=$(PATHWAYS_HEAD):%d", b.port(v1.ComponentResourceManager, rmPort))
}

// port is where the component listens: the last --server_port of its custom flags, else the default.
func (b *builder) port(component v1.ComponentType, port int32) int32 {
	custom := b.custom(component)
	if custom == nil {
		return port
	}
	for i, flag := range custom.CustomFlags {
		name, value, found := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if name != "server_port" {
			continue
		}
		if !found && i+1 < len(custom.CustomFlags) {
			value = custom.CustomFlags[i+1]
		}
		if number, err := strconv.ParseInt(strings.Trim(value, `"'`), 10, 32); err == nil && number > 0 && number < 65536 {
			port = int32(number)
		}
	}
	return port
}

// annotations of the PathwaysJob, which JobSet, Jobs and pods get too, but for kubectl's notes about the object itself.
func (b *builder) annotations() map[string]string {
	annotations := map[string]string{}
	for key, value := range b.job.Annotations {
		if !strings.HasPrefix(key, "kubectl.kubernetes.io/") {
			annotations[key] = value
		}
	}
	return annotations
}

func merged[M ~map[K]V, K comparable, V any](below, above M) M {
	result := M{}
	maps.Copy(result, below)
	maps.Copy(result, above)
	return result
}

func limits(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: amounts(cpu, memory)}
}

func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: amounts(cpu, memory)}
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func fromLabel(name, label string) corev1.EnvVar      { return fromField(name, "labels", label) }
func fromAnnotation(name, label string) corev1.EnvVar { return fromField(name, "annotations", label) }

func fromField(name, kind, key string) corev1.EnvVar {
	field := &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.%s['%s']", kind, key)}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: field}}
}
