"""How the controller behaves with up to 512 hosts (2048 chips), whose devices are simulated: see src/simulation/README.md.

Prints a Markdown table with a row for each size of the cluster: what a step costs the controller, which steps are long enough
to keep the devices busy, what a worker that does nothing costs, how long it takes when all workers come, go, or are replaced.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get('PATHWAYS_BIN', ROOT / 'bin' / 'pathways')).resolve().parent
PLUGIN = pathlib.Path(os.environ.get('PATHWAYS_PJRT_PLUGIN', ROOT / '.deps/plugin/pjrt_c_api_cpu_plugin.so'))
# Hosts: number of slices and type. A host has four chips.
SHAPES = {1: (1, 'v5p-8'), 4: (1, 'v5p-32'), 16: (1, 'v5p-128'), 64: (4, 'v5p-128'), 256: (16, 'v5p-128'), 512: (32, 'v5p-128')}
BUSY = 0.9
LONGEST_STEP_US = 1_000_000


def free_port():
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


class Process:
  """One of the cluster's processes, its log in a file."""

  def __init__(self, folder, name, arguments):
    self.log_path = pathlib.Path(folder) / f'{name}.log'
    environment = {'PATH': os.environ['PATH'], 'PATHWAYS_PJRT_PLUGIN': str(PLUGIN)}
    with open(self.log_path, 'wb') as log:
      self.process = subprocess.Popen([str(BIN / arguments[0]), *arguments[1:]], env=environment, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=subprocess.STDOUT)
    self.pid = self.process.pid

  def times(self, text):
    """When the log said so, in seconds since the epoch."""
    return [datetime.datetime.fromisoformat(line[:26]).replace(tzinfo=datetime.timezone.utc).timestamp()
            for line in self.log_path.read_text(errors='replace').splitlines() if text in line]

  def wait_for(self, text, count=1, seconds=60):
    """Waits until the log has said it so often; returns when it did."""
    deadline = time.monotonic() + seconds
    while len(found := self.times(text)) < count:
      if self.process.poll() is not None or time.monotonic() > deadline:
        raise RuntimeError(f'{self.log_path.name} says "{text}" {len(found)} times, not {count}:\n{self.log_path.read_text()[-2000:]}')
      time.sleep(0.02)
    return found

  def resident_kib(self):
    return int(re.search(r'^VmRSS:\s+(\d+) kB', pathlib.Path(f'/proc/{self.pid}/status').read_text(), re.M)[1])

  def kill(self):
    self.process.kill()
    self.process.wait()


class Cluster:
  """A resource manager, a proxy, and simulated workers, each kind with a log of its own."""

  def __init__(self, hosts):
    self.hosts, (self.slices, self.slice_type) = hosts, SHAPES[hosts]
    self.hosts_per_slice = hosts // self.slices
    self.port, self.rm_port = free_port(), free_port()
    self.folder = tempfile.TemporaryDirectory()
    self.started = []
    self.rm = self._start('rm', 'pathways_resource_manager', f'--server_port={self.rm_port}', f'--instance_count={self.slices}',
                          f'--instance_type={self.slice_type}')
    self.proxy = self._start('proxy', 'pathways_proxy_server', f'--server_port={self.port}', self._rm_flag())
    self.proxy.wait_for('IFRT proxy server started with status OK')

  def _rm_flag(self):
    return f'--resource_manager_address=localhost:{self.rm_port}'

  def _start(self, name, *arguments):
    self.started.append(Process(self.folder.name, f'{len(self.started)}-{name}', arguments))
    return self.started[-1]

  def simulate(self, hosts, launch_us=0):
    return self._start('workers', 'pathways_simulated_workers', self._rm_flag(), f'--num_hosts={hosts}', f'--launch_us={launch_us}')

  def client(self, *arguments):
    """Runs this file's client; returns what it measured."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('JAX_', 'XLA_', 'IFRT_'))}
    environment = {**kept, 'JAX_PLATFORMS': 'proxy', 'JAX_BACKEND_TARGET': f'grpc://127.0.0.1:{self.port}',
                   'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true', 'PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS': '30',
                   'TF_CPP_MIN_LOG_LEVEL': '3'}
    done = subprocess.run([sys.executable, __file__, '--client', str(self.proxy.pid), *map(str, arguments)], env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    if done.returncode != 0:
      raise RuntimeError(f'the client failed:\n{done.stderr.decode()[-3000:]}')
    return json.loads(done.stdout)

  def stop(self):
    for process in reversed(self.started):
      process.process.terminate()
    for process in self.started:
      try:
        process.process.wait(5)
      except subprocess.TimeoutExpired:
        process.kill()
    self.folder.cleanup()


@contextlib.contextmanager
def cluster(hosts):
  one = Cluster(hosts)
  try:
    yield one
  finally:
    one.stop()


def client(proxy_pid, steps, arrays):
  """Inside a JAX client: a small step over all devices. Prints what it takes as JSON."""
  import jax
  import jax.numpy as jnp
  import numpy as np
  import pathwaysutils
  from jax.sharding import Mesh, NamedSharding, PartitionSpec
  pathwaysutils.initialize()

  def cpu(pid):
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

  devices = jax.devices()
  sharding = NamedSharding(Mesh(np.array(devices), ('x',)), PartitionSpec('x'))
  make = jax.jit(lambda: [jnp.zeros(len(devices))] * arrays, out_shardings=[sharding] * arrays)
  step = jax.jit(lambda xs: [x + 1 for x in xs], out_shardings=[sharding] * arrays)
  start = time.monotonic()
  x = jax.block_until_ready(step(make()))
  result = {'devices': len(devices), 'first_step': time.monotonic() - start}
  for _ in range(2):  # the second time counts
    before, start = cpu(proxy_pid), time.monotonic()
    for _ in range(steps):
      x = step(x)
    jax.block_until_ready(x)
    result['step'] = (time.monotonic() - start) / steps
    result['step_proxy_cpu'] = (cpu(proxy_pid) - before) / steps
  waited = []
  for _ in range(10):
    start = time.monotonic()
    x = jax.block_until_ready(step(x))
    waited.append(time.monotonic() - start)
  result['step_waited_for'] = sorted(waited)[len(waited) // 2]
  print(json.dumps(result))


def membership(hosts):
  """Times of all coming, all going, and a slice's going and coming back; and what an idle worker costs."""
  with cluster(hosts) as one:
    time.sleep(0.5)
    before = one.proxy.resident_kib()
    first = one.simulate(hosts - one.hosts_per_slice) if one.slices > 1 else None
    if first:
      one.proxy.wait_for('is ready', hosts - one.hosts_per_slice)
    slice_workers = one.simulate(one.hosts_per_slice)
    ready = one.proxy.wait_for('is ready', hosts)
    # The time in which the second process started is nobody's membership.
    gap = 0
    if first:
      gap = one.rm.times('has come')[hosts - one.hosts_per_slice] - ready[hosts - one.hosts_per_slice - 1]
    join = ready[-1] - one.rm.times('has come')[0] - gap
    time.sleep(0.5)
    memory = (one.proxy.resident_kib() - before) / hosts
    start = time.time()
    slice_workers.kill()
    replacement = one.simulate(one.hosts_per_slice)
    replaced = one.proxy.wait_for('is ready', hosts + one.hosts_per_slice)[-1] - start
    start = time.time()
    for workers in (first, replacement):
      if workers:
        workers.kill()
    lost = hosts + one.hosts_per_slice
    leave = max(one.proxy.wait_for('is lost', lost)[-1], one.rm.wait_for('is lost', lost)[-1]) - start
    return {'join': join, 'leave': leave, 'slice_replaced': replaced, 'kib_per_idle_worker': memory}


def dispatch(hosts, steps, arrays):
  """Steps that take the devices no time: what they cost the controller."""
  with cluster(hosts) as one:
    one.simulate(hosts)
    one.proxy.wait_for('is ready', hosts)
    return one.client(steps, arrays)


def busy(hosts, launch_us, arrays):
  """The part of the time for which the devices work when each step takes so long."""
  steps = max(50, min(1000, 1_000_000 // launch_us))
  with cluster(hosts) as one:
    one.simulate(hosts, launch_us)
    one.proxy.wait_for('is ready', hosts)
    return launch_us / 1e6 / one.client(steps, arrays)['step']


def shortest_busy_step(hosts, step, arrays):
  """The shortest step, within a quarter, that keeps the devices busy, in seconds. Begins with what a step costs."""
  launch_us = max(100, int(step * 1e6))
  while launch_us < LONGEST_STEP_US:
    share = busy(hosts, launch_us, arrays)
    print(f'{hosts} hosts: steps of {launch_us} us keep the devices busy for {share:.0%} of the time', file=sys.stderr, flush=True)
    if share >= BUSY:
      return launch_us / 1e6
    launch_us = launch_us * 5 // 4
  return None


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--hosts', nargs='+', type=int, choices=SHAPES, default=list(SHAPES))
  parser.add_argument('--steps', type=int, default=300, help='steps in flight')
  parser.add_argument('--arrays', type=int, default=1, help='arrays that the step takes and makes, each over all devices')
  parser.add_argument('--no-busy', action='store_true', help='do not look for the shortest step that keeps the devices busy')
  parser.add_argument('--json', help='write all numbers to this file')
  arguments = parser.parse_args()
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # so that what was started is ended
  rows = {}
  print('| hosts | chips | step, in flight | of it proxy CPU | step, waited for | first step | shortest step with >= 90 % busy | '
        'KiB per idle worker | all join | slice replaced | all leave |')
  print('|---:' * 11 + '|')
  for hosts in arguments.hosts:
    row = {**dispatch(hosts, arguments.steps, arguments.arrays), **membership(hosts)}
    row['shortest_busy_step'] = None if arguments.no_busy else shortest_busy_step(hosts, row['step'], arguments.arrays)
    rows[hosts] = row
    ms = lambda name: '-' if row[name] is None else f'{row[name] * 1e3:.2f} ms'
    seconds = lambda name: f'{row[name]:.2f} s'
    print(f'| {hosts} | {row["devices"]} | {ms("step")} | {ms("step_proxy_cpu")} | {ms("step_waited_for")} | {seconds("first_step")} | '
          f'{ms("shortest_busy_step")} | {row["kib_per_idle_worker"]:.1f} | {seconds("join")} | {seconds("slice_replaced")} | '
          f'{seconds("leave")} |', flush=True)
  if arguments.json:
    pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1), encoding='utf-8')


if __name__ == '__main__':
  if sys.argv[1:2] == ['--client']:
    client(*map(int, sys.argv[2:]))
  else:
    main()
