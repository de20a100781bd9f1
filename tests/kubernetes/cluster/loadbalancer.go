package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
)

// loadBalancerMain does what a cloud does for services of type LoadBalancer, with Kubernetes' own controller: each gets
// an address of a range that is routed to the node, where kube-proxy forwards it.
func loadBalancerMain() {
	c := mustLoadCluster()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig("load-balancer"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	services, nodes := factory.Core().V1().Services(), factory.Core().V1().Nodes()
	addresses, err := netip.ParsePrefix(c.loadBalancerRange())
	if err != nil {
		log.Fatal(err)
	}
	balancers := &cloud{services: services.Lister(), addresses: addresses, assigned: make(map[types.UID]string)}
	controller, err := servicecontroller.New(balancers, client, services, nodes, c.id(), utilfeature.DefaultFeatureGate)
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	// One worker: `cloud` is not made for more.
	controller.Run(ctx, 1, controllersmetrics.NewControllerManagerMetrics("load-balancer"))
}

// cloud offers load balancers and nothing else. Not thread-safe.
type cloud struct {
	services  corelisters.ServiceLister
	addresses netip.Prefix
	assigned  map[types.UID]string // by this process; the lister may not know them yet
}

func (c *cloud) GetLoadBalancerName(ctx context.Context, cluster string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (c *cloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return &service.Status.LoadBalancer, len(service.Status.LoadBalancer.Ingress) > 0, nil
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if status, exists, _ := c.GetLoadBalancer(ctx, cluster, service); exists {
		return status, nil
	}
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool)
	for _, other := range services {
		for _, ingress := range other.Status.LoadBalancer.Ingress {
			taken[ingress.IP] = true
		}
	}
	for _, address := range c.assigned {
		taken[address] = true
	}
	for address := c.addresses.Addr().Next(); c.addresses.Contains(address); address = address.Next() {
		if !taken[address.String()] {
			c.assigned[service.UID] = address.String()
			return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: address.String()}}}, nil
		}
	}
	return nil, fmt.Errorf("all addresses of %s are taken", c.addresses)
}

func (c *cloud) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error {
	return nil
}

func (c *cloud) EnsureLoadBalancerDeleted(_ context.Context, _ string, service *v1.Service) error {
	delete(c.assigned, service.UID)
	return nil
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *cloud) Instances() (cloudprovider.Instances, bool)     { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return nil, false }
func (c *cloud) Zones() (cloudprovider.Zones, bool)             { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)       { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)           { return nil, false }
func (c *cloud) ProviderName() string                           { return "test-cluster" }
func (c *cloud) HasClusterID() bool                             { return true }
