"""Single servers, started one by one with flags and environment as manifests give them, instead of by the command line."""
import concurrent.futures
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time

import http2
from cluster import PATHWAYS, ROOT, SLOW, free_port, wait_until

BIN = pathlib.Path(PATHWAYS).resolve().parent
PLUGIN = pathlib.Path(os.environ.get('PATHWAYS_PJRT_PLUGIN', ROOT / '.deps/plugin/pjrt_c_api_cpu_plugin.so')).resolve()


def in_network_of(pid, call):
  """Returns `call()`, made in the network namespace of a process (None: this one's)."""
  if pid is None:
    return call()

  def there():
    with open(f'/proc/{pid}/ns/net') as namespace:
      if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), 'setns')
    return call()

  with concurrent.futures.ThreadPoolExecutor(1) as threads:  # only that thread goes there
    return threads.submit(there).result()


class Server:
  """One process, its log in a file. `prefix`: a command that starts it elsewhere (see namespaces.py), or in another way."""

  def __init__(self, log, command, env=None, prefix=(), address='127.0.0.1', network=None):
    self.log_path, self.address, self.network = pathlib.Path(log), address, network
    self.port = next((int(a.split('=')[1]) for a in command if a.startswith('--server_port=')), None)
    environment = {'PATH': os.environ['PATH'], 'PATHWAYS_PJRT_PLUGIN': str(PLUGIN), **(env or {})}
    with open(self.log_path, 'w') as log_file:
      self.process = subprocess.Popen([*prefix, *command], env=environment, stdin=subprocess.DEVNULL, stdout=log_file,
                                      stderr=subprocess.STDOUT)

  def log(self):
    return self.log_path.read_text(errors='replace')

  def alive(self):
    return self.process.poll() is None

  def wait_for(self, text, seconds=20):
    """Waits until the log holds what matches the regular expression; returns the match."""
    def found():
      match = re.search(text, self.log())
      assert match or self.alive(), f'{self.log_path.name} ended with {self.process.returncode}:\n{self.log()[-3000:]}'
      return match
    return wait_until(found, seconds, f'"{text}" in {self.log_path.name}:\n{self.log()[-3000:]}')

  def pid(self):
    """Of the server itself, whatever started it."""
    pid = self.process.pid
    while True:
      children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
      name = pathlib.Path(f'/proc/{pid}/comm').read_text().strip()
      if name.startswith('pathways') or not children:
        return pid
      pid = int(children[0])

  def stop(self, number=signal.SIGTERM, seconds=5):
    """Sends the signal; returns the exit code and how long it took."""
    start = time.monotonic()
    if self.alive():
      os.kill(self.pid(), number)
    try:
      return self.process.wait(seconds * SLOW), time.monotonic() - start
    except subprocess.TimeoutExpired:
      raise AssertionError(f'{self.log_path.name} still runs {seconds} s after signal {number}:\n{self.log()[-2000:]}') from None

  def kill(self):
    if self.alive():
      os.kill(self.pid(), signal.SIGKILL)
      self.process.wait(10)

  def health(self, service=''):
    """What a Kubernetes probe sees: SERVING, NOT_SERVING, or that there was no answer."""
    return in_network_of(self.network, lambda: http2.check_health(self.address, self.port, service))


class Deployment:
  """Servers of one cluster, in the shape that client_process wants."""

  def __init__(self, folder, slices=2, instance_type='tpuv5:2x2x2', hosts=2):
    self.folder, self.slices, self.instance_type, self.hosts = pathlib.Path(folder), slices, instance_type, hosts
    self.host, self.port, self.client_prefix = '127.0.0.1', free_port(), []
    self.rm_port = free_port()
    self.servers = []

  def environment(self):
    return {k: v for k, v in os.environ.items() if not k.startswith(('JAX_', 'XLA_', 'IFRT_'))}

  def logs(self, lines=25):
    return '\n'.join(f'--- {s.log_path.name}\n' + '\n'.join(s.log().splitlines()[-lines:]) for s in self.servers)

  def start(self, name, binary, arguments, pod=None, env=None):
    where, folder = {}, BIN
    if pod:
      where, folder = pod.where(), pathlib.Path('/mnt/bin')
      env = {**(env or {}), 'PATHWAYS_PJRT_PLUGIN': f'/mnt/plugin/{PLUGIN.name}'}
    server = Server(self.folder / f'{name}-{len(self.servers)}.log', [str(folder / binary), *arguments], env=env, **where)
    self.servers.append(server)
    return server

  def start_rm(self, *flags, **where):
    return self.start('rm', 'pathways_resource_manager',
                      [f'--server_port={self.rm_port}', '--node_type=resource_manager', f'--instance_count={self.slices}',
                       f'--instance_type={self.instance_type}', '--gcs_scratch_location=', *flags], **where)

  def start_proxy(self, *flags, **where):
    return self.start('proxy', 'pathways_proxy_server',
                      [f'--server_port={self.port}', f'--resource_manager_address=localhost:{self.rm_port}',
                       '--gcs_scratch_location=', *flags], **where)

  def start_worker(self, slice_index, host, *flags, port=None, rm=None, env=None, **where):
    env = {'MEGASCALE_SLICE_ID': str(slice_index), 'JOB_COMPLETION_INDEX': str(host), **(env or {})}
    return self.start(f'worker-{slice_index}-{host}', 'pathways_worker',
                      [f'--server_port={port or free_port()}',
                       f'--resource_manager_address={rm or f"localhost:{self.rm_port}"}', '--gcs_scratch_location=', *flags],
                      env=env, **where)

  def cluster_status(self, rm):
    """What a resource manager says of its cluster, as protobuf's text."""
    answer = in_network_of(rm.network, lambda: http2.answer(
        rm.address, rm.port, '/openpathways.resource_manager.ResourceManager/GetStatus', b''))
    return subprocess.run(['protoc', f'--proto_path={ROOT / "src"}', '--decode=openpathways.resource_manager.ClusterStatus',
                           'resource_manager/resource_manager.proto'], input=answer, stdout=subprocess.PIPE, check=True).stdout.decode()

  def stop(self):
    for server in self.servers:
      server.kill()
