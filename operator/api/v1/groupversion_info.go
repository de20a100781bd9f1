// Package v1 is the API of PathwaysJob: a Pathways cluster (head and workers) as one Kubernetes object.
// +kubebuilder:object:generate=true
// +groupName=pathways-job.pathways.domain
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types of this package.
var GroupVersion = schema.GroupVersion{Group: "pathways-job.pathways.domain", Version: "v1"}

// AddToScheme makes this package's types known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PathwaysJob{}, &PathwaysJobList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

//go:generate go tool controller-gen object paths=.
//go:generate go run github.com/openpathways/openpathways/operator/cmd/manifests ../../..
