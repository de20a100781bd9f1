"""Starts JAX clients of a cluster in processes of their own."""
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

from cluster import SLOW

HERE = pathlib.Path(__file__).resolve().parent


def environment(cluster, **extra):
  """Exactly what a user must set, and nothing else that JAX would read."""
  return {**cluster.environment(), 'JAX_PLATFORMS': 'proxy', 'JAX_BACKEND_TARGET': f'grpc://{cluster.host}:{cluster.port}',
          'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true', 'PYTHONPATH': str(HERE), 'PYTHONUNBUFFERED': '1', **extra}


class Client:
  """A running client that executes a piece of Python. Its lines of output are read as they come; it can be sent lines.

  The program finds `jax`, `jnp`, `np`, `lax`, `spmd` and `say` (prints a line at once) already imported.
  """

  PRELUDE = textwrap.dedent('''
      import sys, os, time, threading
      import pathwaysutils
      pathwaysutils.initialize()
      import jax, jax.numpy as jnp, numpy as np
      from jax import lax
      from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
      from client import spmd
      def say(*words): print(*words, flush=True)
      ''')

  def __init__(self, cluster, program, **env):
    self.cluster = cluster
    self.process = subprocess.Popen([*cluster.client_prefix, sys.executable, '-c', self.PRELUDE + textwrap.dedent(program)],
                                    env=environment(cluster, **env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
    self.lines = []
    self._seen = 0
    self._news = threading.Condition()
    self._ended = False
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()

  def _read(self):
    for line in self.process.stdout:
      with self._news:
        self.lines.append(line.rstrip('\n'))
        self._news.notify_all()
    with self._news:
      self._ended = True
      self._news.notify_all()

  def output(self):
    with self._news:
      return '\n'.join(self.lines)

  def _fail(self, why):
    self.kill()
    raise AssertionError(f'{why}\n--- client\n{self.output()}\n{self.cluster.logs()}')

  def wait_for(self, beginning, seconds=30):
    """Waits for the next line that begins so; returns the rest of it."""
    end = time.monotonic() + seconds * SLOW
    with self._news:
      while True:
        while self._seen < len(self.lines):
          line = self.lines[self._seen]
          self._seen += 1
          if line.startswith(beginning):
            return line[len(beginning):].strip()
        left = end - time.monotonic()
        if self._ended or left <= 0:
          break
        self._news.wait(left)
    self._fail(f'client ended without saying "{beginning}"' if self._ended else
               f'client did not say "{beginning}" within {seconds} s')

  def send(self, line=''):
    self.process.stdin.write(line + '\n')
    self.process.stdin.flush()

  def finish(self, seconds=60):
    """Waits for the client's good end; returns its output."""
    try:
      code = self.process.wait(seconds * SLOW)
    except subprocess.TimeoutExpired:
      self._fail(f'client still runs after {seconds} s')
    self._reader.join(5)
    if code != 0:
      self._fail(f'client ended with {code}')
    return self.output()

  def kill(self):
    if self.process.poll() is None:
      self.process.kill()
    self.process.wait()
    self._reader.join(5)

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self.kill()


def run(cluster, program, seconds=60, **env):
  """Runs a piece of Python as a client to its good end; returns its output."""
  with Client(cluster, program, **env) as client:
    return client.finish(seconds)


def run_command(cluster, command, seconds=60, **env):
  """Runs any command with a client's environment; returns (exit code, output)."""
  done = subprocess.run([*cluster.client_prefix, *command], env=environment(cluster, **env), stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, timeout=seconds * SLOW)
  return done.returncode, done.stdout
