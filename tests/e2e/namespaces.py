"""Pods in miniature: processes with a network, IPC, mount, host name and process namespace of their own, as a container runtime makes
them. All of it goes with the processes that hold the namespaces."""
import contextlib
import itertools
import os
import pathlib
import subprocess

from servers import BIN, PLUGIN

NOBODY = 65534


class Node:
  """A network that pods are attached to, IPv4 or IPv6. It is a namespace as well: nothing of this machine changes."""

  def __init__(self, folder, ipv6=False):
    self.folder, self.ipv6 = pathlib.Path(folder), ipv6
    self._numbers = itertools.count(1)
    self._holders = []
    self.hosts = self.folder / 'hosts'  # /etc/hosts of all pods
    self.hosts.write_text('127.0.0.1 localhost\n::1 localhost\n')
    self.pid = self._hold()
    self._in_node('ip link set lo up')
    self._in_node('ip link add br0 type bridge')
    self._in_node('ip link set br0 up')

  def _hold(self):
    """Makes the namespaces; returns the pid of the process that holds them."""
    holder = subprocess.Popen(['unshare', '--net', '--ipc', '--uts', '--mount', '--propagation=private', 'sh', '-c',
                               'echo ready; exec sleep infinity'], stdout=subprocess.PIPE)
    self._holders.append(holder)
    assert holder.stdout.readline() == b'ready\n', 'no namespaces can be made here'
    return holder.pid

  def _in_node(self, command):
    subprocess.run(['nsenter', f'--target={self.pid}', '--net', *command.split()], check=True)

  def name(self, address, name):
    """Gives a name to an address, for all pods; takes it from the one that had it."""
    lines = [line for line in self.hosts.read_text().splitlines() if line.split()[1] != name]
    # Written in place: what the pods see is this very file.
    self.hosts.write_text('\n'.join([*lines, f'{address} {name}']) + '\n')

  def pod(self, shm='64k', share_network_with=None):
    return Pod(self, shm, share_network_with)

  def close(self):
    for holder in self._holders:
      holder.kill()
      holder.wait()


class Pod:
  """Where servers run as in a container: as nobody, first process, read-only root, no home, a name that no one resolves, and a
  small /dev/shm of its own."""

  def __init__(self, node, shm, network_of=None):
    self.pid = node._hold()
    number = next(node._numbers)
    if network_of:
      self.address, network = network_of.address, network_of.network_pid
    else:
      network = self.pid
      self.address = f'fd00:29::{number:x}' if node.ipv6 else f'10.29.0.{number}'
      node._in_node(f'ip link add pod{number} type veth peer name eth0 netns {self.pid}')
      node._in_node(f'ip link set pod{number} master br0')
      node._in_node(f'ip link set pod{number} up')
    self.network_pid = network
    self.url_address = f'[{self.address}]' if node.ipv6 else self.address
    self._run(['hostname', f'pod-{number}-of-nowhere'])
    if not network_of:
      self._run(['ip', 'link', 'set', 'lo', 'up'])
      self._run(['ip', 'link', 'set', 'eth0', 'up'])
      # Usable at once, without asking the network first whether somebody has it.
      self._run(['ip', 'addr', 'add', f'{self.address}/{64 if node.ipv6 else 24}', 'dev', 'eth0', *(['nodad'] if node.ipv6 else [])])
    self._run(['mount', '--bind', str(node.hosts), '/etc/hosts'])
    self._run(['mount', '-t', 'tmpfs', '-o', f'size={shm}', 'tmpfs', '/dev/shm'])
    # The programs, where everybody may reach them, wherever the tests lie.
    self._run(['mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', '/mnt'])
    for name, source in (('bin', BIN), ('plugin', PLUGIN.parent)):
      self._run(['mkdir', f'/mnt/{name}'])
      self._run(['mount', '--bind', str(source), f'/mnt/{name}'])
    self._writable_client = ['nsenter', f'--target={self.pid}', f'--net=/proc/{network}/ns/net', '--ipc', '--uts', '--mount', '--']

  def _run(self, command):
    subprocess.run(['nsenter', f'--target={self.pid}', f'--net=/proc/{self.network_pid}/ns/net', '--ipc', '--uts', '--mount', '--',
                    *command], check=True)

  def client_prefix(self):
    """For programs of the tests' own."""
    return self._writable_client

  def where(self):
    """For servers.Deployment.start_*."""
    return {'prefix': [*self._writable_client, 'unshare', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c',
                       'mount -o remount,bind,ro / && exec "$@"', 'sh', 'setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}',
                       '--clear-groups', '--no-new-privs', '--bounding-set=-all'],
            'address': self.address, 'network': self.network_pid}


@contextlib.contextmanager
def node(folder, ipv6=False):
  assert os.geteuid() == 0, 'only root can make namespaces'
  one = Node(folder, ipv6)
  try:
    yield one
  finally:
    one.close()
