"""Servers in pods of their own: addresses, names that change, no common memory, nothing to write to, not root."""
import os
import re

import pytest

import client_process
import namespaces
from cluster import ROOT, wait_until
from servers import Deployment
from test_failures import program

if os.geteuid() != 0:
  pytest.skip('namespaces can only be made by root: run these tests as root', allow_module_level=True)

HEAD = 'js-pathways-head-0-0.js'
PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]

WORK = program('''
    x = spmd.integers(7, (16, 1 << 20))
    f = summing(everything)
    np.testing.assert_array_equal(f(spmd.put(x, everything)), np.broadcast_to(x.mean(0), x.shape))
    there = jax.device_put(jax.device_put(x, slices[0][5]), slices[1][2])
    np.testing.assert_array_equal(there, x)
    slice_works(meshes[0])
    slice_works(meshes[1])
    say('done')
    ''')


class PodDeployment(Deployment):
  """The ports and names of Kubernetes: every server has its own address, so they are the same for all."""

  def __init__(self, folder, node):
    super().__init__(folder)
    self.node, self.port, self.rm_port = node, 29000, 29001
    client = node.pod(shm='1g')  # of no interest here
    self.client_prefix = client.client_prefix()

  def environment(self):
    return {**super().environment(), 'PYTHONDONTWRITEBYTECODE': '1'}

  def start_head(self):
    pod = self.node.pod()
    self.host = pod.url_address
    self.node.name(pod.address, HEAD)
    rm = self.start_rm(pod=pod, env={'HOST_ADDRESS': HEAD})
    # As one launcher writes it: nobody has expanded the name.
    proxy = self.start('proxy', 'pathways_proxy_server',
                       ['--server_port=29000', '--resource_manager_address=$(PATHWAYS_HEAD):29001', '--gcs_scratch_location='],
                       pod=pod, env={'PATHWAYS_HEAD': HEAD, 'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true'})
    return rm, proxy

  def start_workers(self, pods):
    return [self.start_worker(*place, pod=pod, port=29005, rm=f'{HEAD}:29001') for place, pod in zip(PLACES, pods, strict=True)]


@pytest.fixture(params=['ipv4', 'ipv6'])
def node(tmp_path, request):
  with namespaces.node(tmp_path, ipv6=request.param == 'ipv6') as one:
    yield one


@pytest.fixture
def deployment(tmp_path, node):
  one = PodDeployment(tmp_path, node)
  yield one
  one.stop()


def test_every_server_in_a_pod_of_its_own(deployment):
  """/dev/shm has room for nothing, and no two servers but RM and proxy have a network in common."""
  rm, proxy = deployment.start_head()
  pods = [deployment.node.pod() for _ in PLACES]
  workers = deployment.start_workers(pods)
  rm.wait_for(r'\*\*\* 2/2 Pathways Slices Now Ready')
  for (slice_index, host), pod in zip(PLACES, pods, strict=True):
    rm.wait_for(rf'slice {slice_index} host {host} \(worker \d+, pid 1 on pod-\d+-of-nowhere, {re.escape(pod.url_address)}:29005\) is ready')
  for server in (rm, proxy, *workers):
    wait_until(lambda s=server: s.health('ready') == 'SERVING', 10, f'{server.log_path.name} to be ready')
  assert 'done' in client_process.run(deployment, WORK)
  for worker in workers:
    assert re.search(rf'controller \d+ has connected \({re.escape(re.sub(":29000", "", deployment.host))}:\d+\)', worker.log()), worker.log()
  code, output = client_process.run_command(deployment, [client_process.sys.executable, str(ROOT / 'examples/notebook.py')])
  assert code == 0 and 'all checks hold' in output, output
  for server in (*workers, proxy, rm):  # each is the first process of its namespace
    code, seconds = server.stop()
    assert code == 143 and seconds < 3, f'{server.log_path.name}: {code} after {seconds:.1f} s'


def test_pods_that_share_the_hosts_network_share_memory(tmp_path):
  """As with hostNetwork on one machine: one address, different ports, each with its own /dev/shm, which nobody needs."""
  with namespaces.node(tmp_path) as node:
    deployment = PodDeployment(tmp_path, node)
    try:
      rm, _ = deployment.start_head()
      host = node.pod()
      workers = [deployment.start_worker(*place, pod=node.pod(share_network_with=host), port=29005 + i, rm=f'{HEAD}:29001')
                 for i, place in enumerate(PLACES)]
      rm.wait_for(r'\*\*\* 2/2 Pathways Slices Now Ready')
      assert 'done' in client_process.run(deployment, WORK)
      for worker in workers:
        # The peers' memory is mapped, read-only: nobody else maps it so.
        maps = open(f'/proc/{worker.pid()}/maps').read()
        assert re.search(r' r--s .*memfd:openpathways', maps), maps
    finally:
      deployment.stop()


def test_a_new_head_under_the_old_name(deployment):
  """Workers come first, wait for a name that does not exist, and follow it to another address; what they held is freed."""
  workers = deployment.start_workers([deployment.node.pod() for _ in PLACES])
  for worker in workers:
    worker.wait_for(rf'not registered at the resource manager {HEAD}:29001')
  rm, proxy = deployment.start_head()
  rm.wait_for(r'\*\*\* 2/2 Pathways Slices Now Ready', 10)
  with client_process.Client(deployment, program('''
      kept = [jax.device_put(np.ones(1 << 20), d) for d in jax.devices()]
      jax.block_until_ready(kept)
      say('holding')
      sys.stdin.readline()
      ''')) as client:
    client.wait_for('holding', 60)
    wait_until(lambda: len(re.findall(r'^ +buffers: 4$', deployment.cluster_status(rm), re.M)) == 4, 10, 'all workers to hold buffers')
    proxy.kill()
    rm.kill()
    new_rm, new_proxy = deployment.start_head()
    new_rm.wait_for(r'\*\*\* 2/2 Pathways Slices Now Ready', 10)
  for worker in workers:
    assert worker.alive()
    worker.wait_for('controller \\d+ has disconnected')
  wait_until(lambda: not re.search(r'^ +buffers: [1-9]', deployment.cluster_status(new_rm), re.M), 10, 'what the old session held to be freed')
  assert 'done' in client_process.run(deployment, WORK)
  assert new_proxy.alive()
