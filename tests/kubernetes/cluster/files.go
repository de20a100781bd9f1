package main

import (
	"embed"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// Configuration files of the programs, as templates over Cluster.
//
//go:embed files
var templates embed.FS

const cniPrograms = "/usr/lib/cni" // where Debian puts the plugins

var folders = []string{
	"pki", "kubeconfig", "config/cni", "config/registries/_default", "etcd", "containerd", "kubelet", "registry",
	"sysctl", "log/pods", "log/containers",
}

// writeFiles fills the state folder with all that the node's programs read.
func (c *Cluster) writeFiles() error {
	for _, folder := range folders {
		if err := os.MkdirAll(c.path(folder), 0o700); err != nil {
			return err
		}
	}
	if err := c.writeCertificates(); err != nil {
		return err
	}
	parsed, err := template.New("").ParseFS(templates, "files/*")
	if err != nil {
		return err
	}
	values := map[string]string{
		"State": c.State, "ID": c.id(), "NodeIP": c.nodeIP(), "MachineIP": c.machineIP(), "PodRange": c.podRange(),
		"ClusterDomain": clusterDomain, "Domain": c.Domain, "Registry": c.registry(), "CNIPrograms": cniPrograms,
	}
	if values["Snapshotter"], err = c.snapshotter(); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"containerd.toml": "config/containerd.toml", "cni.conflist": "config/cni/cluster.conflist",
		"hosts.toml": "config/registries/_default/hosts.toml", "kubelet.yaml": "config/kubelet.yaml",
		"kube-proxy.yaml": "config/kube-proxy.yaml", "Corefile": "config/Corefile", "rbac.yaml": "config/rbac.yaml",
		"resolv.conf": "config/resolv.conf",
	} {
		var text strings.Builder
		if err := parsed.ExecuteTemplate(&text, name, values); err != nil {
			return err
		}
		if err := os.WriteFile(c.path(target), []byte(text.String()), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(c.path("config/no-resolv.conf"), nil, 0o600)
}

// snapshotter: overlays need the kernel's support, and cannot lie on an overlay (as in a container).
func (c *Cluster) snapshotter() (string, error) {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return "", err
	}
	kind, err := fileSystemType(filepath.Dir(c.State))
	if err != nil {
		return "", err
	}
	if kind == overlayFileSystem || !strings.Contains(string(known), "\toverlay\n") {
		return "native", nil
	}
	return "overlayfs", nil
}
