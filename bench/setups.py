"""The set-ups that are compared, three of them with 16 devices: how to start it, measure in it, and end it. Each is a function of the
measurements' names and of whether a quick look is enough; it returns {name: [seconds, ...]}."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PATHWAYS = os.environ.get('PATHWAYS_BIN', str(HERE.parent / 'bin' / 'pathways'))


def free_port():
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


def environment(**extra):
  """Without whatever the caller's JAX is set to."""
  kept = {k: v for k, v in os.environ.items() if not k.startswith(('JAX_', 'XLA_', 'IFRT_'))}
  return {**kept, 'TF_CPP_MIN_LOG_LEVEL': '2', **extra}


def start_python(script_and_arguments, env, quiet=False):
  return subprocess.Popen([sys.executable, *map(str, script_and_arguments)], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL if quiet else sys.stderr, stderr=subprocess.DEVNULL if quiet else None)


def measure(folder, k, names, quick, env, more=()):
  output = pathlib.Path(folder) / f'{k}.json'
  options = [*(['--quick'] if quick else []), '--only', *names, *more]
  return start_python([HERE / 'measure.py', output, *options], env, quiet=k > 0), output


def collect(started):
  """Results of all processes of a set-up: the slowest one counts."""
  try:
    for process, _ in started:
      process.wait()
  finally:
    for process, _ in started:
      process.kill()
  results = []
  for _, output in started:
    results.append(json.loads(output.read_text(encoding='utf-8')) if output.exists() else {})
  names = dict.fromkeys(n for result in results for n in result)
  return {n: [max(r) for r in zip(*(result.get(n, []) for result in results))] for n in names}


def one(names, quick):
  """One process of stock JAX with 16 CPU devices."""
  env = environment(JAX_PLATFORMS='cpu', XLA_FLAGS='--xla_force_host_platform_device_count=16')
  with tempfile.TemporaryDirectory() as folder:
    return collect([measure(folder, 0, names, quick, env)])


def multi(names, quick):
  """Multi-controller JAX: four processes with four CPU devices each, gloo between them."""
  env = environment(JAX_PLATFORMS='cpu', XLA_FLAGS='--xla_force_host_platform_device_count=4')
  coordinator = f'127.0.0.1:{free_port()}'
  with tempfile.TemporaryDirectory() as folder:
    more = lambda k: ['--process', str(k), '--processes', '4', '--coordinator', coordinator]
    return collect([measure(folder, k, names, quick, env, more(k)) for k in range(4)])


def machine(names, quick):
  """This machine's memory, sockets and gRPC streams, without us."""
  baselines = pathlib.Path(PATHWAYS).resolve().parent / 'transfer_baselines'
  printed = subprocess.run([baselines, f'--bytes={256 << 20}', f'--repetitions={5 if quick else 15}'], check=True, stdout=subprocess.PIPE)
  return json.loads(printed.stdout)


@contextlib.contextmanager
def cluster(**servers_environment):
  """Two slices of v5p-16, as `pathways up` starts them; yields a client's environment."""
  with tempfile.TemporaryDirectory() as state:
    env = environment(XDG_STATE_HOME=state, XDG_CACHE_HOME=os.path.join(state, 'cache'))
    port = free_port()
    try:
      subprocess.run([PATHWAYS, 'up', '--num-slices=2', '--tpu-type=v5p-16', '--name=bench', f'--port={port}'],
                     env={**env, **servers_environment}, check=True, stdout=sys.stderr)
      yield {**env, 'JAX_PLATFORMS': 'proxy', 'JAX_BACKEND_TARGET': f'grpc://127.0.0.1:{port}',
             'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true'}
    finally:
      subprocess.run([PATHWAYS, 'down', '--name=bench'], env=env, check=False, stdout=sys.stderr)


def first_devices():
  """From nothing to a client that has its devices: `pathways up`, then a Python that imports JAX."""
  start = time.perf_counter()
  with cluster() as env:
    client = start_python(['-c', 'import pathwaysutils, jax; pathwaysutils.initialize(); assert len(jax.devices()) == 16'], env, quiet=True)
    assert client.wait() == 0, 'the client got no devices'
    return time.perf_counter() - start


def cpu_time(state_home):
  """Seconds of CPU, to the nanosecond, that all processes of the cluster with this state folder have used."""
  total = 0
  for process in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
      if f'XDG_STATE_HOME={state_home}'.encode() in (process / 'environ').read_bytes().split(b'\0'):
        total += sum(int((task / 'schedstat').read_text().split()[0]) for task in (process / 'task').iterdir())
  return total / 1e9


def idle(env):
  time.sleep(3)  # until what was asked for last is done
  before = cpu_time(env['XDG_STATE_HOME'])
  time.sleep(10)
  return cpu_time(env['XDG_STATE_HOME']) - before


@contextlib.contextmanager
def bulk_client(env):
  client = start_python([HERE / 'measure.py', os.devnull, '--bulk'], env, quiet=True)
  try:
    time.sleep(5)
    yield
    assert client.poll() is None, 'the other client has ended'
  finally:
    client.kill()
    client.wait()


def ours(names, quick):
  """This project: one client, four workers with four devices each."""
  results = {}
  rest = list(names)

  def take(*special):
    taken = [n for n in special if n in rest]
    rest[:] = [n for n in rest if n not in taken]
    return taken

  def client(names, env):
    with tempfile.TemporaryDirectory() as folder:
      results.update(collect([measure(folder, 0, names, quick, env)]))

  if take('first-devices'):
    results['first-devices'] = [first_devices() for _ in range(3)]
  if sockets := take('slice-to-slice-sockets'):
    with cluster(PATHWAYS_SHARED_MEMORY='off') as env:
      client(sockets, env)
  files, beside, is_idle = take('put-file', 'write-file'), take('step-beside-bulk'), take('idle')
  with tempfile.TemporaryDirectory(dir='/dev/shm') as shared:
    directory = {'IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY': shared}
    with cluster(**directory) as env:
      if rest:
        client(rest, env)
      if files:
        client(files, {**env, **directory, 'IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_THRESHOLD_BYTES': str(1 << 20)})
      if beside:
        with bulk_client(env):
          client(beside, env)
      if is_idle:
        results['idle'] = [idle(env)]
  return results


SETUPS = {'ours': ours, 'one': one, 'multi': multi, 'machine': machine}
