package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	nodeName      = "node"
	clusterDomain = "cluster.local"
	registryPort  = 5000
)

// Cluster says where a cluster lies: its folder on this machine, its addresses, its programs. It is written to the
// folder, so that the processes of the node and later commands find it.
type Cluster struct {
	State    string // folder of everything that belongs to this cluster
	Network  string // first two numbers of all its addresses, e.g. "10.218"
	Domain   string // a second name of the DNS domain, as that of a cloud's network-wide DNS
	Programs string // folder of this program and its links
}

// The machine and the node are the two ends of a virtual cable; the other ranges are routed to the node.
func (c *Cluster) machineIP() string         { return c.Network + ".0.1" }
func (c *Cluster) nodeIP() string            { return c.Network + ".0.2" }
func (c *Cluster) podRange() string          { return c.Network + ".1.0/24" }
func (c *Cluster) serviceRange() string      { return c.Network + ".2.0/24" }
func (c *Cluster) apiServiceIP() string      { return c.Network + ".2.1" }
func (c *Cluster) loadBalancerRange() string { return c.Network + ".3.0/24" }
func (c *Cluster) registry() string          { return fmt.Sprintf("%s:%d", c.nodeIP(), registryPort) }

// id is this cluster's name on the machine: of its network device and its cgroup.
func (c *Cluster) id() string {
	return fmt.Sprintf("op%x", sha256.Sum256([]byte(c.State)))[:10]
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.State}, elements...)...)
}

func (c *Cluster) kubeconfig(user string) string { return c.path("kubeconfig", user) }

func (c *Cluster) program(name string) string { return filepath.Join(c.Programs, name) }

func clusterFromEnvironment() (*Cluster, error) {
	state := os.Getenv("CLUSTER_STATE")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("set CLUSTER_STATE: %w", err)
		}
		state = filepath.Join(home, ".local/state/openpathways/kubernetes")
	}
	state, err := filepath.Abs(state)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	network := orDefault(os.Getenv("CLUSTER_NETWORK"), "10.218")
	var a, b byte
	if n, _ := fmt.Sscanf(network, "%d.%d", &a, &b); n != 2 || fmt.Sprintf("%d.%d", a, b) != network {
		return nil, fmt.Errorf("CLUSTER_NETWORK=%s: give the first two numbers of the addresses, e.g. 10.218", network)
	}
	return &Cluster{
		State:    state,
		Network:  network,
		Domain:   orDefault(os.Getenv("CLUSTER_DOMAIN"), "user-test"),
		Programs: filepath.Dir(self),
	}, nil
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// loadCluster reads what `up` wrote. errNoCluster if there is none.
func loadCluster(state string) (*Cluster, error) {
	data, err := os.ReadFile(filepath.Join(state, "cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", errNoCluster, state)
	} else if err != nil {
		return nil, err
	}
	var c Cluster
	return &c, json.Unmarshal(data, &c)
}

var errNoCluster = errors.New("no cluster")

func (c *Cluster) save() error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("cluster.json"), data, 0o600)
}

// Process is the node's first process, as the machine sees it.
type Process struct {
	PID     int
	Started string // in ticks since boot: tells it from a later process with the same number
}

func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field, in parentheses, is the only one that can hold blanks; 'started' is the 22nd.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[19], nil
}

// process returns nil if the node does not run.
func (c *Cluster) process() (*Process, error) {
	data, err := os.ReadFile(c.path("process.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var p Process
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	if !p.running() {
		return nil, nil
	}
	return &p, nil
}

func (p *Process) running() bool {
	started, err := startTime(p.PID)
	return err == nil && started == p.Started
}
