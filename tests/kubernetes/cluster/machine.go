package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What a cluster leaves outside of its own namespaces and of its state folder is made and removed here: a cgroup, and a
// network device with its routes.

const overlayFileSystem = unix.OVERLAYFS_SUPER_MAGIC

func fileSystemType(path string) (int64, error) {
	for { // the nearest folder that exists
		var stat unix.Statfs_t
		err := unix.Statfs(path, &stat)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return int64(stat.Type), err
		}
		path = filepath.Dir(path)
	}
}

// cgroups returns this cluster's folder in every hierarchy of cgroups.
func (c *Cluster) cgroups() ([]string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, line := range strings.Split(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			folders = append(folders, filepath.Join(f[1], c.id()))
		}
	}
	if len(folders) == 0 {
		return nil, errors.New("no cgroups are mounted on this machine")
	}
	return folders, nil
}

func (c *Cluster) makeCgroups() error {
	folders, err := c.cgroups()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A new cpuset of cgroup v1 is empty, and nothing can run in it.
		for _, file := range []string{"cpuset.mems", "cpuset.cpus"} {
			own, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil || len(strings.TrimSpace(string(own))) > 0 {
				continue
			}
			parent, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
			if err != nil {
				continue // cgroup v2, where an empty one means its parent's
			}
			if err := os.WriteFile(filepath.Join(folder, file), parent, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) removeCgroups() error {
	folders, err := c.cgroups()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		// The last processes in it are dead, but the kernel may not have put them away yet.
		err := retry(10*time.Second, func() error { return removeFolders(folder) })
		if err != nil {
			return err
		}
	}
	return nil
}

// removeFolders removes a tree of folders whose files go with them, as those of a cgroup.
func removeFolders(root string) error {
	var folders []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if err := unix.Rmdir(folder); err != nil && err != unix.ENOENT {
			return fmt.Errorf("removing the cgroup %s: %w", folder, err)
		}
	}
	return nil
}

// plugIn joins the machine and the node, and routes the cluster's addresses to the node.
func (c *Cluster) plugIn(pid int) error {
	cable := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: c.id()}, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("making the network device %s: %w", c.id(), err)
	}
	address, err := netlink.ParseAddr(c.machineIP() + "/30")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(cable, address); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return err
	}
	for _, destination := range []string{c.podRange(), c.serviceRange(), c.loadBalancerRange()} {
		_, network, err := net.ParseCIDR(destination)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: cable.Attrs().Index, Dst: network, Gw: net.ParseIP(c.nodeIP())}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("routing %s: %w", destination, err)
		}
	}
	return nil
}

func (c *Cluster) unplug() error {
	link, err := netlink.LinkByName(c.id())
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	} else if err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && err != unix.ENODEV { // it also goes with the node's namespace
		return err
	}
	return nil
}

// checkAddresses fails if an address of the cluster's is already somebody else's.
func (c *Cluster) checkAddresses() error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if strings.HasPrefix(address.String(), c.Network+".") {
			return fmt.Errorf("this machine has the address %s already: set CLUSTER_NETWORK to other numbers than %s", address, c.Network)
		}
	}
	return nil
}

// retry calls f until it succeeds; its last error if that takes too long.
func retry(limit time.Duration, f func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
