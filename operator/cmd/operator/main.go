// Command operator turns PathwaysJobs into running Pathways clusters.
package main

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // for running outside of the cluster
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobsetv1 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
	"github.com/openpathways/openpathways/operator/internal/controller"
	"github.com/openpathways/openpathways/operator/internal/jobset"
)

var version = "unknown" // set by the linker

// leaderElectionID is that of Google's operator: the two must not run in one namespace at the same time.
const leaderElectionID = "12183607.pathways.domain"

type options struct {
	imageRepository, defaultVersion, defaultNodeKind, imagePullPolicy string
	metricsAddress, probeAddress, namespace, electionNamespace        string
	metricsPlain, leaderElect, printVersion                           bool
	concurrency                                                       int
	zap                                                               zap.Options
}

func parseOptions(set *flag.FlagSet, args []string) (options, error) {
	var o options
	set.StringVar(&o.imageRepository, "image-repository", "ghcr.io/openpathways", "where the images server and proxy_server are")
	set.StringVar(&o.defaultVersion, "default-version", "latest", "tag of the images where spec.pathwaysVersion is empty")
	set.StringVar(&o.defaultNodeKind, "default-node-kind", string(v1.NodeKindTPU), "tpu or cpu: what workers[].nodeKind is where it is absent")
	set.StringVar(&o.imagePullPolicy, "image-pull-policy", "", "Always, IfNotPresent or Never; empty: Kubernetes' own default")
	set.StringVar(&o.namespace, "namespace", "", "the one namespace to look after; empty: all")
	set.IntVar(&o.concurrency, "max-concurrent-reconciles", 4, "PathwaysJobs that are worked on at a time")
	set.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "address of /metrics, such as :8443; 0: none")
	set.BoolVar(&o.metricsPlain, "metrics-plain", false, "serve /metrics by HTTP to everyone, instead of HTTPS to those whom the API server allows it")
	set.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0: none")
	set.BoolVar(&o.leaderElect, "leader-elect", false, "work only while no other operator does")
	set.StringVar(&o.electionNamespace, "leader-election-namespace", "", "namespace of the lease; empty: the operator's own")
	set.BoolVar(&o.printVersion, "version", false, "print the version and end")
	o.zap.StacktraceLevel = zapcore.PanicLevel // errors are told in words
	o.zap.BindFlags(set)
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if kind := v1.NodeKind(o.defaultNodeKind); kind != v1.NodeKindTPU && kind != v1.NodeKindCPU {
		return o, fmt.Errorf("--default-node-kind must be tpu or cpu, not %q", o.defaultNodeKind)
	}
	switch corev1.PullPolicy(o.imagePullPolicy) {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return o, fmt.Errorf("--image-pull-policy must be Always, IfNotPresent or Never, not %q", o.imagePullPolicy)
	}
	return o, nil
}

func run(o options) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetv1.AddToScheme, v1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	managerOptions := ctrl.Options{
		Scheme:                  scheme,
		HealthProbeBindAddress:  o.probeAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        leaderElectionID,
		LeaderElectionNamespace: o.electionNamespace,
		// The process ends when the manager does, so another one may take over at once.
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		Cache:                         cache.Options{ByObject: controller.CacheByObject()},
	}
	if o.namespace != "" {
		managerOptions.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	if !o.metricsPlain {
		managerOptions.Metrics.SecureServing = true
		managerOptions.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	err = controller.Setup(mgr, controller.Options{
		Defaults: jobset.Defaults{
			ImageRepository: o.imageRepository,
			Version:         o.defaultVersion,
			NodeKind:        v1.NodeKind(o.defaultNodeKind),
			ImagePullPolicy: corev1.PullPolicy(o.imagePullPolicy),
		},
		MaxConcurrentReconciles: o.concurrency,
		Metrics:                 controller.NewMetrics(metrics.Registry),
	})
	if err != nil {
		return err
	}
	ctrl.Log.Info("starting", "version", version, "imageRepository", o.imageRepository, "defaultVersion", o.defaultVersion,
		"defaultNodeKind", o.defaultNodeKind)
	return mgr.Start(ctrl.SetupSignalHandler())
}

func main() {
	o, err := parseOptions(flag.CommandLine, os.Args[1:]) // which has controller-runtime's --kubeconfig already
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if o.printVersion {
		fmt.Println(version)
		return
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.zap)))
	if err := run(o); err != nil {
		ctrl.Log.Error(err, "the operator ends")
		os.Exit(1)
	}
}
