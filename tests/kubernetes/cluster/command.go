package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commands of `cluster`, in the order in which `up` prints them.
var commands = map[string]func(*Cluster, []string) error{
	"up": (*Cluster).up, "down": (*Cluster).down, "env": (*Cluster).env, "status": (*Cluster).status,
	"load": (*Cluster).loadArchives, "logs": (*Cluster).logs, "exec": (*Cluster).exec, "run": (*Cluster).run,
}

func clusterMain() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fail(errors.New("no such command: call the script `cluster`"))
	}
	c, err := clusterFromEnvironment()
	if err != nil {
		fail(err)
	}
	if os.Args[1] != "up" {
		// What runs may be another build's than this, at other addresses than those of the environment.
		existing, err := loadCluster(c.State)
		if errors.Is(err, errNoCluster) && os.Args[1] == "down" {
			return
		} else if err != nil {
			fail(err)
		}
		c = existing
	}
	if err := commands[os.Args[1]](c, os.Args[2:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode()) // of the command that `exec` or `run` ran, which has spoken for itself
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	os.Exit(1)
}

// lock keeps a second `up` or `down` of the same cluster waiting until this process ends.
func (c *Cluster) lock() error {
	if os.Geteuid() != 0 {
		return errors.New("must run as root")
	}
	if err := os.MkdirAll(filepath.Dir(c.State), 0o700); err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Dir(c.State), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Flock(fd, unix.LOCK_EX)
}

func (c *Cluster) up([]string) error {
	if err := c.lock(); err != nil {
		return err
	}
	existing, err := loadCluster(c.State)
	if err == nil {
		if existing.upToDate(c) {
			fmt.Println("already up")
			return nil
		}
		if err := existing.remove(); err != nil {
			return err
		}
	} else if !errors.Is(err, errNoCluster) {
		return err
	} else if entries, err := os.ReadDir(c.State); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is no cluster's folder, but not empty", c.State)
	}
	if err := c.checkAddresses(); err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	if err := c.awaitReady(); err != nil {
		c.printLogs(5)
		return err
	}
	return nil
}

// upToDate tells whether this cluster runs, is ready, and is what `wanted` asks for.
func (c *Cluster) upToDate(wanted *Cluster) bool {
	process, err := c.process()
	return err == nil && process != nil && *c == *wanted && c.nodeReady(context.Background()) == nil
}

func (c *Cluster) start() error {
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return err
	}
	// From here on, `down` finds what there is to remove, and the programs to do it.
	if err := errors.Join(c.save(), os.Symlink(c.Programs, c.path("programs"))); err != nil {
		return err
	}
	if err := errors.Join(c.writeFiles(), c.makeCgroups()); err != nil {
		return err
	}
	output, err := os.Create(c.path("log/node.log"))
	if err != nil {
		return err
	}
	defer output.Close()
	node := exec.Command(c.program("init"), c.State)
	node.Stdout, node.Stderr = output, output
	node.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if err := node.Start(); err != nil {
		return fmt.Errorf("making the node's namespaces: %w", err)
	}
	started, err := startTime(node.Process.Pid)
	if err != nil {
		return err
	}
	process, err := json.Marshal(Process{node.Process.Pid, started})
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("process.json"), process, 0o600); err != nil {
		return err
	}
	return c.plugIn(node.Process.Pid)
}

func (c *Cluster) down([]string) error {
	if err := c.lock(); err != nil {
		return err
	}
	return c.remove()
}

func (c *Cluster) remove() error {
	process, err := c.process()
	if err != nil {
		return err
	}
	if process != nil {
		if err := unix.Kill(process.PID, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return err
		}
		// The first process of a namespace ends after all others.
		err := retry(30*time.Second, func() error {
			unix.Wait4(process.PID, nil, unix.WNOHANG, nil) // if `up` itself failed, it is our child
			if process.running() {
				return fmt.Errorf("the node's first process, %d, does not end", process.PID)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := errors.Join(c.unplug(), c.removeCgroups()); err != nil {
		return err
	}
	return os.RemoveAll(c.State)
}

func (c *Cluster) env([]string) error {
	fmt.Printf("export KUBECONFIG=%s\n", c.kubeconfig("admin"))
	fmt.Printf("export PATH=%s:$PATH\n", c.Programs)
	fmt.Printf("export KUBEBUILDER_ASSETS=%s\n", c.Programs)
	fmt.Printf("export CLUSTER_DNS_SERVER=%s CLUSTER_DNS_DOMAIN=%s\n", c.nodeIP(), c.Domain)
	fmt.Printf("export CLUSTER_JOBSET_MANIFEST=%s\n", c.program("jobset.yaml"))
	return nil
}

func (c *Cluster) status([]string) error {
	process, err := c.process()
	if err != nil {
		return err
	}
	if process == nil {
		return fmt.Errorf("the node of %s does not run (it was killed): `cluster up` starts it anew", c.State)
	}
	fmt.Printf("state     %s\nprograms  %s\nnode      process %d, %s, domain %s\n\n", c.State, c.Programs, process.PID, c.nodeIP(), c.Domain)
	command := c.kubectl("get", "nodes,pods", "--all-namespaces", "--output=wide")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return err
	}
	return c.nodeReady(context.Background())
}

func (c *Cluster) loadArchives(archives []string) error {
	for _, archive := range archives {
		images, err := c.load(context.Background(), archive)
		if err != nil {
			return err
		}
		for _, image := range images {
			// The node may have pulled an earlier image of this name. It is pulled again only if it is forgotten.
			tag, err := c.reference(image)
			if err != nil {
				return err
			}
			local := tag.RepositoryStr() + ":" + tag.TagStr()
			forget, err := c.inNode("ctr", "--namespace=k8s.io", "images", "remove", local)
			if err != nil {
				return err
			}
			if output, err := forget.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w", output, err)
			}
			fmt.Println("loaded", image)
		}
	}
	return nil
}

func (c *Cluster) logs(programs []string) error {
	if len(programs) == 0 {
		c.printLogs(20)
		return nil
	}
	for _, program := range programs {
		data, err := os.ReadFile(c.path("log", program+".log"))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no log of %s in %s", program, c.path("log"))
		} else if err != nil {
			return err
		}
		os.Stdout.Write(data)
	}
	return nil
}

func (c *Cluster) printLogs(lines int) {
	files, _ := filepath.Glob(c.path("log/*.log"))
	tail := exec.Command("tail", append([]string{"--verbose", "--lines=" + strconv.Itoa(lines)}, files...)...)
	tail.Stdout, tail.Stderr = os.Stderr, os.Stderr
	if err := tail.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster: reading the logs:", err)
	}
}

// inNode is a command in the node's namespaces.
func (c *Cluster) inNode(arguments ...string) (*exec.Cmd, error) {
	process, err := c.process()
	if err != nil {
		return nil, err
	}
	if process == nil {
		return nil, fmt.Errorf("the node of %s does not run", c.State)
	}
	enter := []string{"--target", strconv.Itoa(process.PID), "--mount", "--net", "--pid", "--ipc", "--uts", "--"}
	command := exec.Command("nsenter", append(enter, arguments...)...)
	command.Env = append(os.Environ(), "PATH="+c.Programs+":"+os.Getenv("PATH"))
	return command, nil
}

func (c *Cluster) exec(arguments []string) error {
	command, err := c.inNode(arguments...)
	if err != nil {
		return err
	}
	return runAttached(command)
}

// run runs a command on the machine with the cluster's DNS, as on a virtual machine beside the cluster in its network.
func (c *Cluster) run(arguments []string) error {
	script := `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`
	return runAttached(exec.Command("unshare", append([]string{
		"--mount", "sh", "-c", script, c.path("config/resolv.conf")}, arguments...)...))
}

func runAttached(command *exec.Cmd) error {
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	return command.Run()
}

func (c *Cluster) kubectl(arguments ...string) *exec.Cmd {
	return exec.Command(c.program("kubectl"), append([]string{"--kubeconfig=" + c.kubeconfig("admin")}, arguments...)...)
}
