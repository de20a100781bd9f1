package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

// awaitReady waits until everything that tests use works, each checked by using it.
func (c *Cluster) awaitReady() error {
	start := time.Now()
	ctx := context.Background()
	steps := []struct {
		what  string
		limit time.Duration
		check func(context.Context) error
	}{
		{"the API server answers", 2 * time.Minute, func(ctx context.Context) error { return output(c.kubectl("get", "--raw", "/readyz")) }},
		{"the node is ready", 2 * time.Minute, c.nodeReady},
		{"names are resolved", time.Minute, c.namesResolved},
		{"pods have an account", time.Minute, func(ctx context.Context) error {
			return output(c.kubectl("get", "serviceaccount", "default"))
		}},
		{"JobSet is installed", time.Minute, func(ctx context.Context) error {
			return output(c.kubectl("apply", "--server-side", "--filename="+c.program("jobset.yaml")))
		}},
		{"JobSet takes orders", 3 * time.Minute, c.jobSetAdmits},
	}
	for _, step := range steps {
		err := retry(step.limit, func() error {
			if process, err := c.process(); err != nil || process == nil {
				return errors.Join(errors.New("the node ended"), err)
			}
			return step.check(ctx)
		})
		if err != nil {
			return fmt.Errorf("not true after %s: %s: %w", step.limit, step.what, err)
		}
		fmt.Printf("%5.1f s  %s\n", time.Since(start).Seconds(), step.what)
	}
	return nil
}

func output(command *exec.Cmd) error {
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

func (c *Cluster) nodeReady(context.Context) error {
	return output(c.kubectl("wait", "--for=condition=Ready", "node/"+nodeName, "--timeout=1s"))
}

func (c *Cluster) namesResolved(ctx context.Context) error {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, c.nodeIP()+":53")
	}}
	for _, domain := range []string{clusterDomain, c.Domain} {
		addresses, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+domain+".")
		if err != nil {
			return err
		}
		if len(addresses) != 1 || addresses[0] != c.apiServiceIP() {
			return fmt.Errorf("kubernetes.default.svc.%s is %v, not %s", domain, addresses, c.apiServiceIP())
		}
	}
	return nil
}

// jobSetAdmits: its webhooks answer, through kube-proxy, from a pod whose image was pulled.
func (c *Cluster) jobSetAdmits(context.Context) error {
	command := c.kubectl("create", "--dry-run=server", "--filename=-")
	command.Stdin = strings.NewReader(`{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "probe", "namespace": "default"},
		"spec": {"replicatedJobs": [{"name": "probe", "template": {"spec": {"template": {"spec": {
			"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}}}}}]}}`)
	return output(command)
}
