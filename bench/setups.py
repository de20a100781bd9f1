"""The three set-ups that are compared, each with 16 devices: how to start it, measure in it, and end it."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

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


def measure(folder, k, options, more, env):
  output = pathlib.Path(folder) / f'{k}.json'
  process = subprocess.Popen([sys.executable, str(HERE / 'measure.py'), str(output), *options, *more], env=env, stdin=subprocess.DEVNULL,
                             stdout=sys.stderr if k == 0 else subprocess.DEVNULL, stderr=None if k == 0 else subprocess.DEVNULL)
  return process, output


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


def one(options):
  """One process of stock JAX with 16 CPU devices."""
  env = environment(JAX_PLATFORMS='cpu', XLA_FLAGS='--xla_force_host_platform_device_count=16')
  with tempfile.TemporaryDirectory() as folder:
    return collect([measure(folder, 0, options, [], env)])


def multi(options):
  """Multi-controller JAX: four processes with four CPU devices each, gloo between them."""
  env = environment(JAX_PLATFORMS='cpu', XLA_FLAGS='--xla_force_host_platform_device_count=4')
  coordinator = f'127.0.0.1:{free_port()}'
  with tempfile.TemporaryDirectory() as folder:
    more = lambda k: ['--process', str(k), '--processes', '4', '--coordinator', coordinator]
    return collect([measure(folder, k, options, more(k), env) for k in range(4)])


@contextlib.contextmanager
def cluster():
  """Two slices of v5p-16, as `pathways up` starts them; yields a client's environment."""
  with tempfile.TemporaryDirectory() as state:
    env = environment(XDG_STATE_HOME=state)
    port = free_port()
    try:
      subprocess.run([PATHWAYS, 'up', '--num-slices=2', '--tpu-type=v5p-16', '--name=bench', f'--port={port}'], env=env, check=True,
                     stdout=sys.stderr)
      yield {**env, 'JAX_PLATFORMS': 'proxy', 'JAX_BACKEND_TARGET': f'grpc://127.0.0.1:{port}',
             'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true'}
    finally:
      subprocess.run([PATHWAYS, 'down', '--name=bench'], env=env, check=False, stdout=sys.stderr)


def ours(options):
  """This project: one client, four workers with four devices each."""
  with cluster() as env, tempfile.TemporaryDirectory() as folder:
    return collect([measure(folder, 0, options, [], env)])


SETUPS = {'ours': ours, 'one': one, 'multi': multi}
