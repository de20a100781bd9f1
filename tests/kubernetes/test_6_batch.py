"""PathwaysJobs with a program of the user's: its exit status decides."""
import textwrap

import pytest

from kube import until

# `command` of the user's container is Python that the notebook image runs.
MANIFEST = '''
apiVersion: pathways-job.pathways.domain/v1
kind: PathwaysJob
metadata:
  name: {name}
spec:
  maxRestarts: {max_restarts}
  workers:
  - type: ct5p-hightpu-4t
    topology: 2x2x1
    numSlices: 2
  controller:
    deploymentMode: default
    template:
      metadata:
        labels: {{of-the-user: "yes"}}
      spec:
        containers:
        - name: main
          image: jupyter/base-notebook
          command: [python3, -c]
          args:
          - |
{program}
'''
TRAIN = '''
import pathwaysutils
pathwaysutils.initialize()
import jax, jax.numpy as jnp
print(len(jax.devices()), 'devices', jax.pmap(lambda x: jax.lax.psum(x, 'i'), 'i')(jnp.ones(8)))
'''


def manifest(name, program, max_restarts=0):
  return MANIFEST.format(name=name, max_restarts=max_restarts, program=textwrap.indent(program, ' ' * 12))


@pytest.fixture
def batch(installed, notebook_image):
  made = []

  def make(name, *arguments):
    made.append(name)
    installed.apply(manifest(name, *arguments))
    return installed

  yield make
  for name in made:
    installed.delete(name)


def test_completed(batch):
  kubernetes = batch('completes', TRAIN)
  kubernetes.await_condition('completes', 'Completed', timeout=240)
  job = kubernetes.get('pathwaysjob', 'completes')
  assert job['status']['terminalState'] == 'Completed' and job['status'].get('restarts', 0) == 0
  head = kubernetes.get('pods', '-l', 'jobset.sigs.k8s.io/jobset-name=completes,of-the-user=yes')['items']
  assert len(head) == 1, 'the labels of the template are lost'
  log = kubernetes.kubectl('logs', head[0]['metadata']['name'], '-c', 'main')
  assert '8 devices [8. 8. 8. 8. 8. 8. 8. 8.]' in log, log
  assert not [pod for pod in kubernetes.pods('completes') if pod['status']['phase'] == 'Running'], 'workers stay'


def test_failed_after_its_restarts(batch):
  kubernetes = batch('fails', 'raise SystemExit(3)', 1)
  condition = kubernetes.await_condition('fails', 'Failed', timeout=240)
  job = kubernetes.get('pathwaysjob', 'fails')
  assert job['status']['terminalState'] == 'Failed' and job['status'].get('restarts', 0) == 1, job['status']
  assert condition['message'], condition
