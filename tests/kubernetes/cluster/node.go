package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The node is one process namespace. Its first process (`init`) prepares the other namespaces and collects dead
// processes; when it is killed, the kernel ends all others and drops their mounts, devices and packet filters. Its
// child (`supervise`) keeps the programs running.

func mustLoadCluster() *Cluster {
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s STATE (only `cluster up` starts this)", os.Args[0])
	}
	c, err := loadCluster(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func initMain() {
	c := mustLoadCluster()
	if os.Getpid() != 1 {
		log.Fatal("not the first process of a namespace: only `cluster up` starts this")
	}
	if err := unix.Sethostname([]byte(nodeName)); err != nil {
		log.Fatal(err)
	}
	if err := c.mount(); err != nil {
		log.Fatal(err)
	}
	if err := c.configureNetwork(); err != nil {
		log.Fatal(err)
	}
	supervisor, err := os.StartProcess(c.program("supervise"), []string{"supervise", c.State},
		&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Env: os.Environ()})
	if err != nil {
		log.Fatal(err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			log.Fatal(err)
		}
		if pid == supervisor.Pid {
			log.Fatal("the supervisor ended")
		}
	}
}

// mount gives the node folders of its own, where the programs' names for them are fixed. Nobody else sees it.
func (c *Cluster) mount() error {
	type mount struct {
		source, target, kind string
		flags                uintptr
	}
	mounts := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE}, // nothing to or from the machine
		{"", "/", "", unix.MS_REC | unix.MS_SHARED},  // but between the kubelet and its pods
		{"proc", "/proc", "proc", 0},
	}
	var kept []mount
	for _, covered := range []string{"/run", "/var/lib", "/var/log"} {
		mounts = append(mounts, mount{"tmpfs", covered, "tmpfs", 0})
		for _, folder := range []string{c.State, c.Programs} {
			if !strings.HasPrefix(folder, covered+"/") {
				continue
			}
			descriptor, err := unix.Open(folder, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			kept = append(kept, mount{fmt.Sprintf("/proc/self/fd/%d", descriptor), folder, "", unix.MS_BIND})
		}
	}
	mounts = append(mounts, kept...)
	mounts = append(mounts,
		mount{c.path("kubelet"), "/var/lib/kubelet", "", unix.MS_BIND},
		mount{c.path("log/pods"), "/var/log/pods", "", unix.MS_BIND},
		mount{c.path("log/containers"), "/var/log/containers", "", unix.MS_BIND})
	// Settings of the whole machine's kernel that the kubelet wants: it sees them as it wants them, the machine keeps its own.
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := c.path("sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return err
		}
		mounts = append(mounts, mount{file, "/proc/sys/" + name, "", unix.MS_BIND})
	}
	for _, m := range mounts {
		if !strings.HasPrefix(m.target, "/proc") {
			if err := os.MkdirAll(m.target, 0o755); err != nil { // on a tmpfs of the node's
				return err
			}
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.source, m.target, err)
		}
	}
	return nil
}

func (c *Cluster) configureNetwork() error {
	// `up` puts it in; it comes after this process.
	var cable netlink.Link
	err := retry(30*time.Second, func() (err error) {
		cable, err = netlink.LinkByName("eth0")
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for eth0: %w", err)
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(c.nodeIP() + "/30")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(cable, address); err != nil {
		return err
	}
	for _, link := range []netlink.Link{loopback, cable} {
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	// The node's own packets to a service need some route, before kube-proxy's rules send them elsewhere. All other
	// addresses but those of the machine and the pods do not exist here.
	for _, destination := range []string{c.serviceRange(), c.loadBalancerRange()} {
		_, network, err := net.ParseCIDR(destination)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: loopback.Attrs().Index, Dst: network, Src: net.ParseIP(c.nodeIP()), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("routing %s: %w", destination, err)
		}
	}
	for _, setting := range []string{"ip_forward", "conf/all/route_localnet"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+setting, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	// Where the kernel has bridge filtering, packets between two pods pass kube-proxy's rules too.
	if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func superviseMain() {
	c := mustLoadCluster()
	log.SetPrefix("supervise: ")
	if err := os.Setenv("PATH", c.Programs+":"+os.Getenv("PATH")); err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(c.serveRegistry()) }()
	if err := retry(30*time.Second, func() error { return c.pushOwnImages() }); err != nil {
		log.Fatal(err)
	}
	for _, p := range c.firstPrograms() {
		go c.keep(p)
	}
	kubectl := func(arguments ...string) error {
		command := exec.Command(c.program("kubectl"), append([]string{"--kubeconfig", c.kubeconfig("admin")}, arguments...)...)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(arguments, " "), err, output)
		}
		return nil
	}
	if err := retry(2*time.Minute, func() error { return kubectl("get", "--raw", "/readyz") }); err != nil {
		log.Fatal(err)
	}
	if err := kubectl("apply", "-f", c.path("config/rbac.yaml")); err != nil {
		log.Fatal(err)
	}
	for _, p := range c.otherPrograms() {
		go c.keep(p)
	}
	select {}
}

// program is something that the node keeps running.
type program struct {
	name      string
	arguments []string
}

func (c *Cluster) keep(p program) {
	output, err := os.OpenFile(c.path("log", p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	defer output.Close()
	for {
		command := exec.Command(p.name, p.arguments...)
		command.Stdout, command.Stderr = output, output
		log.Printf("%s starts", p.name)
		log.Printf("%s ended: %v", p.name, command.Run())
		time.Sleep(time.Second)
	}
}

func (c *Cluster) firstPrograms() []program {
	local := "http://127.0.0.1:2379"
	return []program{
		{"etcd", []string{
			"--name=node", "--data-dir=" + c.path("etcd"), "--log-level=warn",
			"--unsafe-no-fsync", // a cluster does not outlive its machine
			"--listen-client-urls=" + local, "--advertise-client-urls=" + local,
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=node=http://127.0.0.1:2380",
		}},
		{"containerd", []string{"--config=" + c.path("config/containerd.toml")}},
		{"kube-apiserver", []string{
			"--etcd-servers=" + local, "--advertise-address=" + c.nodeIP(), "--service-cluster-ip-range=" + c.serviceRange(),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--tls-cert-file=" + c.path("pki/apiserver.crt"), "--tls-private-key-file=" + c.path("pki/apiserver.key"),
			"--client-ca-file=" + c.path("pki/ca.crt"),
			"--kubelet-certificate-authority=" + c.path("pki/ca.crt"),
			"--kubelet-client-certificate=" + c.path("pki/apiserver-kubelet.crt"),
			"--kubelet-client-key=" + c.path("pki/apiserver-kubelet.key"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
			"--service-account-key-file=" + c.path("pki/service-accounts.key"),
			"--service-account-signing-key-file=" + c.path("pki/service-accounts.key"),
		}},
	}
}

// otherPrograms need the API server.
func (c *Cluster) otherPrograms() []program {
	return []program{
		{"kube-controller-manager", []string{
			"--kubeconfig=" + c.kubeconfig("controller-manager"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--use-service-account-credentials", "--root-ca-file=" + c.path("pki/ca.crt"),
			"--service-account-private-key-file=" + c.path("pki/service-accounts.key"),
			"--cluster-signing-cert-file=" + c.path("pki/ca.crt"), "--cluster-signing-key-file=" + c.path("pki/ca.key"),
		}},
		{"kube-scheduler", []string{
			"--kubeconfig=" + c.kubeconfig("scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1",
		}},
		{"kubelet", []string{
			"--config=" + c.path("config/kubelet.yaml"), "--kubeconfig=" + c.kubeconfig("kubelet"),
			"--hostname-override=" + nodeName, "--node-ip=" + c.nodeIP(),
		}},
		{"kube-proxy", []string{"--config=" + c.path("config/kube-proxy.yaml"), "--hostname-override=" + nodeName}},
		{"coredns", []string{"-conf", c.path("config/Corefile")}},
		{"load-balancer", []string{c.State}},
	}
}

func (c *Cluster) serveRegistry() error {
	server := &http.Server{Addr: c.registry(), Handler: newRegistry(c.path("registry")), ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

func (c *Cluster) pushOwnImages() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(
		c.pushProgram(ctx, pauseImage, c.program("pause"), "/pause"),
		c.pushProgram(ctx, jobSetImage, c.program("jobset"), "/manager"))
}
