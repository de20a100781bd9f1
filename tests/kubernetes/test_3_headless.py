"""The user's document, step by step: a headless workload, the three ways to connect to it, faults, deleting it."""
import re
import subprocess
import sys
import textwrap

import pytest

from kube import CLUSTER, NAMESPACE, headless, until

NAME = 'pathways-user'
LOAD_BALANCER = f'''
apiVersion: v1
kind: Service
metadata:
  name: {NAME}-ilb
  annotations:
    networking.gke.io/load-balancer-type: "Internal"
    networking.gke.io/internal-load-balancer-allow-global-access: "true"
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector:
    jobset.sigs.k8s.io/jobset-name: {NAME}
    jobset.sigs.k8s.io/replicatedjob-name: pathways-head
  ports:
  - name: tcp-port
    protocol: TCP
    port: 29000
    targetPort: 29000
'''


@pytest.fixture(scope='module')
def job(installed):
  installed.apply(headless(NAME, max_restarts=2))
  try:
    installed.await_running(NAME)
    yield installed
  finally:
    installed.kubectl('delete', 'service', f'{NAME}-ilb', '--ignore-not-found')
    installed.delete(NAME)


@pytest.fixture(scope='module')
def target(job):
  """The load balancer's address: a client anywhere in the network of the cluster reaches the head under it."""
  job.apply(LOAD_BALANCER)

  def address():
    ingress = job.get('service', f'{NAME}-ilb')['status']['loadBalancer'].get('ingress')
    return ingress[0]['ip'] if ingress else None
  return f'grpc://{until(address, 60, "the load balancer to have an address")}:29000'


def test_pods(job):
  lines = job.kubectl('get', 'pods').splitlines()[1:]
  shown = sorted(re.sub(r'-\w{5}$', '', line.split()[0]) + ' ' + ' '.join(line.split()[1:4])
                 for line in lines if line.startswith(NAME))
  assert shown == [f'{NAME}-pathways-head-0-0 2/2 Running 0'] + [
      f'{NAME}-pathways-workers-{s}-{w} 1/1 Running 0' for s in range(2) for w in range(2)], '\n'.join(lines)


def test_status_tells_the_truth(job):
  table = job.kubectl('get', 'pathwaysjob', NAME)
  assert '2/2' in table and f'grpc://{NAME}-pathways-head-0-0.{NAME}' in table, table
  status = job.get('pathwaysjob', NAME)['status']
  assert (status['slicesReady'], status['slicesDesired'], status.get('restarts', 0)) == (2, 2, 0)
  assert {c['type']: c['status'] for c in status['conditions']}.items() >= {
      'Running': 'True', 'SlicesReady': 'True'}.items()
  assert len({c['type'] for c in status['conditions']}) == len(status['conditions'])
  description = job.kubectl('describe', 'pathwaysjob', NAME)
  assert 'Events:' in description and '<none>' not in description.split('Events:')[1], description


def test_connect_by_port_forward(job):
  with job.port_forward(job.head_pod(NAME), 29000) as port:
    job.check_connection(f'grpc://127.0.0.1:{port}')


def test_connect_by_dns_name(job):
  host = f'{NAME}-pathways-head-0-0.{NAME}.{NAMESPACE}.svc.{job.dns_domain}'
  job.check_connection(f'grpc://{host}:29000', prefix=[CLUSTER, 'run'])


def test_connect_by_load_balancer(job, target):
  job.check_connection(target)


def test_pathways_connect(job):
  output = job.pathways('connect', NAME, '--port=0', '--', sys.executable, '-c', textwrap.dedent('''
      import pathwaysutils, jax
      pathwaysutils.initialize()
      print(len(jax.devices()), 'devices')
      '''))
  assert '16 devices' in output, output


def test_connect_passes_on_the_exit_status(job):
  job.pathways('connect', NAME, '--port=0', '--', sys.executable, '-c', 'raise SystemExit(7)', code=7)


def test_a_deleted_worker_comes_back(job, target):
  """Its slice's arrays are lost, by name; the other slice goes on; the same devices work again."""
  program = textwrap.dedent('''
      import sys, time
      import pathwaysutils
      pathwaysutils.initialize()
      import jax, jax.numpy as jnp, numpy as np
      from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
      devices = np.array(jax.devices())
      def array(slice_index):
        of_slice = [d for d in devices if d.slice_index == slice_index]
        return jax.device_put(np.arange(8.), NamedSharding(Mesh(np.array(of_slice), 'x'), P('x')))
      total = jax.jit(jnp.sum)
      zero, one = array(0), array(1)
      assert float(total(zero)) == 28 and float(total(one)) == 28
      print('computed', flush=True)
      sys.stdin.readline()
      deadline = time.time() + 30
      while True:
        assert float(total(zero)) == 28  # never disturbed
        try:
          total(one).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
          print('lost:', str(error).replace('\\n', ' '), flush=True)
          break
        assert time.time() < deadline, 'the loss was not noticed'
        time.sleep(0.1)
      deadline = time.time() + 90
      while True:
        assert float(total(zero)) == 28
        try:
          assert float(total(array(1))) == 28
          break
        except jax.errors.JaxRuntimeError as error:
          assert time.time() < deadline, error
          time.sleep(0.5)
      both = jax.device_put(np.arange(16.), NamedSharding(Mesh(devices, 'x'), P('x')))
      assert float(total(both)) == 120
      print('recovered', flush=True)
      ''')
  client = subprocess.Popen([sys.executable, '-c', program], env=job.client_env(target), text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  try:
    seen = []
    for line in client.stdout:
      seen.append(line)
      if line == 'computed\n':
        break
    before = {pod['metadata']['name'] for pod in job.pods(NAME)}
    (victim,) = [name for name in before if '-workers-1-0-' in name]
    job.kubectl('delete', 'pod', victim, '--wait=false')
    output, _ = client.communicate('go\n', timeout=180)
  finally:
    client.kill()
  assert client.returncode == 0, ''.join(seen) + output + job.describe(NAME)
  lost = re.search(r'^lost: (.*)', output, re.M)[1]
  assert 'DATA_LOSS' in lost and re.search(r'slice 1\b', lost) and re.search(r'host 0\b', lost), lost
  job.await_running(NAME)
  after = {pod['metadata']['name'] for pod in job.pods(NAME)}
  assert len(before - after) == 1 and len(after - before) == 1, (before, after)
  assert job.get('pathwaysjob', NAME)['status'].get('restarts', 0) == 0


def test_a_deleted_head_restarts_the_job(job, target):
  """Clients see an error at once, and the next ones connect as before."""
  program = textwrap.dedent('''
      import os, sys, time
      import pathwaysutils
      pathwaysutils.initialize()
      import jax, jax.numpy as jnp
      step = jax.jit(lambda x: x + 1)
      x = step(jnp.zeros(8))
      x.block_until_ready()
      print('computed', flush=True)
      sys.stdin.readline()
      deadline = time.time() + 40
      try:
        while time.time() < deadline:
          x = step(x)
          x.block_until_ready()
          time.sleep(0.05)
      except Exception as error:
        print('error after the head went:', type(error).__name__, str(error)[:200], flush=True)
        os._exit(0)
      os._exit(3)
      ''')
  client = subprocess.Popen([sys.executable, '-c', program], env=job.client_env(target), text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  try:
    for line in client.stdout:
      if line == 'computed\n':
        break
    job.kubectl('delete', 'pod', job.head_pod(NAME), '--wait=false')
    output, _ = client.communicate('go\n', timeout=90)
  finally:
    client.kill()
  assert client.returncode == 0, output
  until(lambda: job.get('pathwaysjob', NAME)['status'].get('restarts', 0) == 1, 90, 'a restart', lambda: job.describe(NAME))
  job.await_running(NAME)
  job.check_connection(target)


def test_delete_leaves_nothing(job):
  job.kubectl('delete', 'service', f'{NAME}-ilb', '--ignore-not-found')
  job.kubectl('delete', '-f', '-', stdin=headless(NAME, max_restarts=2))
  job.await_gone(NAME)
