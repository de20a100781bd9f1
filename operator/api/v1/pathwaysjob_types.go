package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The rules below are checked by the API server (CEL). The topology rules are those of internal/topology; a test
// compares the two on a real API server. Fields marked "Extension" are not in Google's PathwaysJob; all are optional.

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=pathwaysjobs,singular=pathwaysjob,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="TerminalState",JSONPath=".status.terminalState",type=string,description="Completed or Failed, once it has ended"
// +kubebuilder:printcolumn:name="Completed",JSONPath=".status.conditions[?(@.type==\"Completed\")].status",type=string
// +kubebuilder:printcolumn:name="Failed",JSONPath=".status.conditions[?(@.type==\"Failed\")].status",type=string
// +kubebuilder:printcolumn:name="Suspended",JSONPath=".status.conditions[?(@.type==\"Suspended\")].status",type=string
// +kubebuilder:printcolumn:name="Age",JSONPath=".metadata.creationTimestamp",type=date
// +kubebuilder:printcolumn:name="Slices",JSONPath=".status.slices",type=string,description="Slices that are ready / slices asked for"
// +kubebuilder:printcolumn:name="Address",JSONPath=".status.address",type=string,description="JAX_BACKEND_TARGET inside the cluster"
// +kubebuilder:printcolumn:name="Degraded",JSONPath=".status.conditions[?(@.type==\"Degraded\")].reason",type=string,priority=1,description="What keeps it from working, if anything"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 22",message="metadata.name is longer than 22 characters: the head's address, NAME-pathways-head-0-0.NAME, is put into a label, and labels end at 63 characters; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label, since it becomes part of host names: lower-case letters, digits and '-', a letter first, no '-' at the end"

// PathwaysJob is a Pathways cluster: one head (resource manager and proxy, with the user's container if there is one)
// and the workers of one or more accelerator slices.
type PathwaysJob struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PathwaysJobSpec `json:"spec"`
	// +optional
	Status PathwaysJobStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// PathwaysJobList is a list of PathwaysJobs.
type PathwaysJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PathwaysJob `json:"items"`
}

// PathwaysJobSpec says what cluster is wanted. Nothing of it can be changed later: delete the object and create it anew.
// +kubebuilder:validation:XValidation:rule="self.?maxRestarts.orValue(0) == oldSelf.?maxRestarts.orValue(0)",fieldPath=.maxRestarts,message="maxRestarts is immutable"
// +kubebuilder:validation:XValidation:rule=`(has(self.pathwaysDir) ? self.pathwaysDir : "") == (has(oldSelf.pathwaysDir) ? oldSelf.pathwaysDir : "")`,fieldPath=.pathwaysDir,message="pathwaysDir is immutable"
// +kubebuilder:validation:XValidation:rule=`(has(self.pathwaysVersion) ? self.pathwaysVersion : "") == (has(oldSelf.pathwaysVersion) ? oldSelf.pathwaysVersion : "")`,fieldPath=.pathwaysVersion,message="pathwaysVersion is immutable"
// +kubebuilder:validation:XValidation:rule="self.workers == oldSelf.workers",fieldPath=.workers,message="workers are immutable"
// +kubebuilder:validation:XValidation:rule="has(self.customComponents) == has(oldSelf.customComponents) && (!has(self.customComponents) || self.customComponents == oldSelf.customComponents)",fieldPath=.customComponents,message="custom components are immutable"
// +kubebuilder:validation:XValidation:rule="self.?hostNetwork.orValue(false) == oldSelf.?hostNetwork.orValue(false)",fieldPath=.hostNetwork,message="hostNetwork is immutable"
// +kubebuilder:validation:XValidation:rule="self.controller.?elasticSlices.orValue(0) <= self.workers[0].numSlices",fieldPath=.controller.elasticSlices,message="elasticSlices, the slices that may be missing, must not be more than workers[0].numSlices"
type PathwaysJobSpec struct {
	// MaxRestarts is how often the whole job is started again after the head, the user's program, or too many workers
	// have failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRestarts int32 `json:"maxRestarts,omitempty"`

	// PathwaysDir is the place for temporary artifacts, such as gs://bucket/folder; passed on as --gcs_scratch_location.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	PathwaysDir string `json:"pathwaysDir,omitempty"`

	// PathwaysVersion is the tag of the images; the operator's --default-version if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$')",message="pathwaysVersion must be the tag of an image: letters, digits, '_', '.', '-'"
	PathwaysVersion string `json:"pathwaysVersion,omitempty"`

	// Workers are the slices.
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	Workers []WorkerSpec `json:"workers"`

	// Controller is the head.
	// +required
	Controller ControllerSpec `json:"controller"`

	// CustomComponents changes the images, flags and environment of single components.
	// +optional
	// +listType=map
	// +listMapKey=componentType
	// +kubebuilder:validation:MaxItems=4
	CustomComponents []CustomComponent `json:"customComponents,omitempty"`

	// HostNetwork gives the head (without a template) and the workers the node's network instead of the pods'.
	// Ports 29000 to 29002 and 29005, 29006, 8471, 8080 are then taken on the nodes. Extension.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// MachineType is a machine type of Google Cloud with TPU chips.
// +kubebuilder:validation:Enum=tpu7x-standard-4t;ct6e-standard-4t;ct6e-standard-8t;ct5p-hightpu-4t;ct5lp-hightpu-4t;ct5lp-hightpu-8t;ct4p-hightpu-4t
type MachineType string

// NodeKind is what a worker finds on its node.
// +kubebuilder:validation:Enum=tpu;cpu
type NodeKind string

const (
	// NodeKindTPU is a node with TPU chips, as GKE labels them.
	NodeKindTPU NodeKind = "tpu"
	// NodeKindCPU is any node; the slice's chips are emulated.
	NodeKindCPU NodeKind = "cpu"
)

// WorkerSpec is a number of equal slices.
// +kubebuilder:validation:XValidation:rule="!self.type.startsWith('ct5lp-') && !self.type.startsWith('ct6e-') || self.topology in (self.type.endsWith('-8t') ? ['2x4'] : ['2x2', '2x4', '4x4', '4x8', '8x8', '8x16', '16x16']) || self.type == 'ct6e-standard-4t' && self.topology == '1x1'",fieldPath=.topology,messageExpression="'\"' + self.topology + '\" is not a topology of ' + self.type + ': possible is ' + (self.type.endsWith('-8t') ? '2x4' : (self.type == 'ct6e-standard-4t' ? '1x1, 2x2' : '2x2') + ', 2x4, 4x4, 4x8, 8x8, 8x16, 16x16')"
// +kubebuilder:validation:XValidation:rule="self.type.startsWith('ct5lp-') || self.type.startsWith('ct6e-') || self.topology in ['2x2x1', '2x2x2', '2x2x4', '2x4x4'] || self.topology.matches('^[1-9][0-9]{0,2}x[1-9][0-9]{0,2}x[1-9][0-9]{0,2}$') && [self.topology.split('x').map(side, int(side))].all(d, d.all(side, side % 4 == 0) && d[0] <= d[1] && d[1] <= d[2] && d[0] * d[1] * d[2] <= (self.type == 'ct4p-hightpu-4t' ? 4096 : self.type == 'ct5p-hightpu-4t' ? 8960 : 9216))",fieldPath=.topology,messageExpression="'\"' + self.topology + '\" is not a topology of ' + self.type + ': possible are 2x2x1, 2x2x2, 2x2x4, 2x4x4, and every AxBxC of multiples of 4 with A <= B <= C and at most ' + (self.type == 'ct4p-hightpu-4t' ? '4096' : self.type == 'ct5p-hightpu-4t' ? '8960' : '9216') + ' chips: 4x4x4, 4x4x8, 4x4x12, 4x8x8, 4x4x16, 4x8x12, 8x8x8, 4x8x16, 8x8x12, 8x8x16, 8x12x12, 8x16x16, 12x12x16, 16x16x16, ...'"
type WorkerSpec struct {
	// Type is the machine type of the slices' hosts.
	// +required
	Type MachineType `json:"type"`

	// Topology is the shape of a slice in chips, such as 2x2x2 or 4x4.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Topology string `json:"topology"`

	// NumSlices is the number of slices.
	// +required
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="numSlices must be at least 1"
	// +kubebuilder:validation:XValidation:rule="self <= 100000",message="numSlices must be at most 100000"
	NumSlices int32 `json:"numSlices"`

	// MaxSliceRestarts is how often each host of a slice may fail before the whole job is restarted. Used only with
	// controller.elasticSlices > 0.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxSliceRestarts int32 `json:"maxSliceRestarts,omitempty"`

	// TerminationGracePeriodSeconds is the time that workers have to leave.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// PriorityClassName is the workers' priority class.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// NodeSelector is added to the workers' own; cloud.google.com/gke-tpu-accelerator and -topology are always
	// overwritten on TPU nodes.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// NodeKind says what the workers find on their nodes: "tpu" (GKE's TPU node pools: selectors, google.com/tpu
	// resources, one slice a node pool), or "cpu" (any node: chips are emulated). The operator's --default-node-kind if
	// absent. Extension.
	// +optional
	NodeKind NodeKind `json:"nodeKind,omitempty"`

	// Plugin is the path of the PJRT plugin in the worker's container, if it is not the image's own. Extension.
	// +optional
	Plugin string `json:"plugin,omitempty"`
}

// DeploymentMode says where the head runs.
// +kubebuilder:validation:Enum=default;colocate_head_with_workers
type DeploymentMode string

const (
	// DeploymentDefault puts the head on a node of its own (with TPU nodes), any node otherwise.
	DeploymentDefault DeploymentMode = "default"
	// DeploymentColocated puts the head on a node of the workers' node pool.
	DeploymentColocated DeploymentMode = "colocate_head_with_workers"
)

// ControllerSpec is the head: resource manager, proxy, and the user's containers if there are any.
// +kubebuilder:validation:XValidation:rule="self.deploymentMode == oldSelf.deploymentMode",fieldPath=.deploymentMode,message="deploymentMode is immutable"
// +kubebuilder:validation:XValidation:rule="self.?enableMetricsCollection.orValue(false) == oldSelf.?enableMetricsCollection.orValue(false)",fieldPath=.enableMetricsCollection,message="enableMetricsCollection is immutable"
// +kubebuilder:validation:XValidation:rule="self.?elasticSlices.orValue(0) == oldSelf.?elasticSlices.orValue(0)",fieldPath=.elasticSlices,message="elasticSlices is immutable"
// +kubebuilder:validation:XValidation:rule=`(has(self.mainContainerName) ? self.mainContainerName : "") == (has(oldSelf.mainContainerName) ? oldSelf.mainContainerName : "")`,fieldPath=.mainContainerName,message="mainContainerName is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.template) == has(oldSelf.template) && (!has(self.template) || self.template == oldSelf.template)",fieldPath=.template,message="userPodTemplate is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || size(self.template.spec.containers) == 1 || self.template.spec.containers.exists(c, c.name == self.mainContainerName)",fieldPath=.mainContainerName,message="mainContainerName must name the container of the template that runs JAX"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !self.template.spec.containers.exists(c, c.name in ['pathways-rm', 'pathways-proxy'])",fieldPath=.template,message="the container names pathways-rm and pathways-proxy are taken by the operator's own containers"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy in ['Never', 'OnFailure']",fieldPath=.template.spec.restartPolicy,message="restartPolicy must be Never (the default here) or OnFailure"
type ControllerSpec struct {
	// DeploymentMode says where the head runs.
	// +required
	DeploymentMode DeploymentMode `json:"deploymentMode"`

	// MainContainerName is the container of the template that runs JAX: it gets the environment that connects it. If the
	// template has one container only, it is that one, whatever its name.
	// +optional
	// +kubebuilder:default=main
	// +kubebuilder:validation:MaxLength=63
	MainContainerName string `json:"mainContainerName,omitempty"`

	// EnableMetricsCollection passes --enable_metrics_collection=true to all servers.
	// +optional
	EnableMetricsCollection bool `json:"enableMetricsCollection,omitempty"`

	// Template is the pod of the user's program. Absent: the cluster is headless, for clients that connect to it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// ElasticSlices is the number of slices that may be missing at a time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ElasticSlices int32 `json:"elasticSlices,omitempty"`
}

// ComponentType is a program of the cluster.
// +kubebuilder:validation:Enum=pathways_server;worker;proxy_server;colocated_python_sidecar
type ComponentType string

const (
	// ComponentResourceManager is the resource manager.
	ComponentResourceManager ComponentType = "pathways_server"
	// ComponentWorker is the worker of each host.
	ComponentWorker ComponentType = "worker"
	// ComponentProxy is what JAX connects to.
	ComponentProxy ComponentType = "proxy_server"
	// ComponentSidecar runs colocated Python next to each worker. It exists only if it has an image here.
	ComponentSidecar ComponentType = "colocated_python_sidecar"
)

// CustomComponent changes one component.
// +kubebuilder:validation:XValidation:rule="self.componentType != 'colocated_python_sidecar' || has(self.image) && size(self.image) > 0",message="colocated_python_sidecar needs an image: there is no default one"
type CustomComponent struct {
	// ComponentType is the component that is changed.
	// +required
	ComponentType ComponentType `json:"componentType"`

	// Image is used instead of the default one.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// CustomFlags are added after the operator's own, so they win.
	// +optional
	// +listType=atomic
	CustomFlags []string `json:"customFlags,omitempty"`

	// CustomEnv is added after the operator's own.
	// +optional
	// +listType=atomic
	CustomEnv []corev1.EnvVar `json:"customEnv,omitempty"`

	// Resources replace the component's default requests and limits. Extension.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ImagePullPolicy of the component; the operator's --image-pull-policy if absent. Extension.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// DisableProbes leaves out the health probes, for images that do not serve grpc.health.v1. Extension.
	// +optional
	DisableProbes bool `json:"disableProbes,omitempty"`
}

// Condition types. Exactly one of the first five is True once the operator has seen the object.
const (
	// ConditionPending: the cluster is on its way, or waits for something.
	ConditionPending = "Pending"
	// ConditionRunning: all slices have been ready since the last (re)start, and the head is.
	ConditionRunning = "Running"
	// ConditionSuspended: the JobSet is suspended.
	ConditionSuspended = "Suspended"
	// ConditionCompleted: the user's program has succeeded.
	ConditionCompleted = "Completed"
	// ConditionFailed: the job has failed for good.
	ConditionFailed = "Failed"
	// ConditionSlicesReady: all slices are ready now; the message counts them. Extension.
	ConditionSlicesReady = "SlicesReady"
	// ConditionDegraded: something keeps the cluster from working, and the message says what to do. Extension.
	ConditionDegraded = "Degraded"
)

// Terminal states.
const (
	TerminalCompleted = "Completed"
	TerminalFailed    = "Failed"
)

// PathwaysJobStatus is what the operator has seen.
type PathwaysJobStatus struct {
	// Conditions, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Restarts is how often the whole job was started again.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`

	// TerminalState is Completed or Failed once the job has ended.
	// +optional
	TerminalState string `json:"terminalState,omitempty"`

	// ObservedGeneration is the generation of the spec that the status is about. Extension.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// SlicesReady is the number of slices all of whose hosts are ready. Extension.
	// +optional
	SlicesReady int32 `json:"slicesReady"`

	// SlicesDesired is the number of slices asked for. Extension.
	// +optional
	SlicesDesired int32 `json:"slicesDesired"`

	// Slices is the two above for people, such as "1/2". Extension.
	// +optional
	Slices string `json:"slices,omitempty"`

	// Address is what JAX_BACKEND_TARGET should be inside the cluster; empty when nothing runs. Extension.
	// +optional
	Address string `json:"address,omitempty"`
}
