package controller

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// JobSetCRD is the CustomResourceDefinition that JobSet installs.
const JobSetCRD = "jobsets.jobset.x-k8s.io"

const installJobSet = "kubectl apply --server-side -f https://github.com/kubernetes-sigs/jobset/releases/download/v0.11.1/manifests.yaml"

// jobSetAPI starts to watch JobSets once the cluster knows what they are. A watch on an unknown kind would end the
// manager; so nothing reads JobSets through the cache before ensure has returned nil.
type jobSetAPI struct {
	live       client.Reader
	cache      cache.Cache
	controller controller.Controller

	mu       sync.Mutex
	watching bool
}

func newJobSetAPI(live client.Reader, cache cache.Cache, controller controller.Controller) *jobSetAPI {
	return &jobSetAPI{live: live, cache: cache, controller: controller}
}

// ensure returns nil when JobSets can be used, else what is in the way.
func (a *jobSetAPI) ensure(ctx context.Context) *problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watching {
		return nil
	}
	if found := a.check(ctx); found != nil {
		return found
	}
	// Any JobSet of a PathwaysJob's name matters, owned or not: one that is in the way may go.
	err := a.controller.Watch(source.Kind(a.cache, &jobsetv1.JobSet{}, handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, js *jobsetv1.JobSet) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(js)}}
		})))
	if err != nil {
		return &problem{reasonJobSetMissing, fmt.Sprintf("JobSets cannot be watched: %v; it is tried again", err)}
	}
	a.watching = true
	return nil
}

func (a *jobSetAPI) check(ctx context.Context) *problem {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := a.live.Get(ctx, types.NamespacedName{Name: JobSetCRD}, crd)
	if apierrors.IsNotFound(err) {
		return &problem{reasonJobSetMissing, "JobSet is not installed in this cluster: install version 0.8 or later, " + installJobSet +
			"; this job then starts by itself"}
	}
	if err != nil {
		return &problem{reasonJobSetMissing, fmt.Sprintf("whether JobSet is installed cannot be seen: %v; it is tried again", err)}
	}
	for _, version := range crd.Spec.Versions {
		if version.Name == jobsetv1.GroupVersion.Version && version.Served && hasNewFields(version) {
			return nil
		}
	}
	return &problem{reasonJobSetTooOld, "the installed JobSet is too old: install version 0.8 or later, " + installJobSet +
		"; this job then starts by itself"}
}

// hasNewFields: the CRD does not say its version, so it is known by what came with 0.8.
func hasNewFields(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return false
	}
	spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
	_, coordinator := spec.Properties["coordinator"]
	_, strategy := spec.Properties["failurePolicy"].Properties["restartStrategy"]
	return coordinator && strategy
}
