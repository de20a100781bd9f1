"""One Kubernetes for all tests, with the project's images in its registry; see README.md."""
import os
import pathlib
import subprocess

import pytest

from kube import CLUSTER, PATHWAYS, ROOT, Kubernetes, run

KEEP = os.environ.get('PATHWAYS_TEST_KEEP_CLUSTER')


@pytest.fixture(scope='session')
def kubernetes():
  """The test cluster, nothing of ours installed. PATHWAYS_TEST_KEEP_CLUSTER=1 leaves it up, for the next run."""
  run([CLUSTER, 'up'], env=os.environ, timeout=1500)
  exports = f'eval "$({CLUSTER} env)" && env -0'
  env = dict(entry.split('=', 1) for entry in
             subprocess.run(['bash', '-c', exports], check=True, capture_output=True, text=True).stdout.split('\0') if entry)
  yield Kubernetes(env)
  if not KEEP:
    run([CLUSTER, 'down'], env=os.environ)


@pytest.fixture(scope='session')
def images(kubernetes):
  """The project's images, in the cluster's registry under the names that the install manifest uses."""
  run([ROOT / 'deploy/images/build', f'--bin={PATHWAYS.parent}'], env=os.environ, timeout=600)
  for archive in sorted((ROOT / 'build/images').glob('*.tar')):
    if archive.name != 'notebook.tar':
      run([CLUSTER, 'load', archive], env=os.environ)


@pytest.fixture(scope='session')
def installed(kubernetes, images):
  """The operator, installed by `pathways install`."""
  kubernetes.kubectl('apply', '--server-side', '-f', kubernetes.env['CLUSTER_JOBSET_MANIFEST'])
  kubernetes.kubectl('rollout', 'status', '-n', 'jobset-system', 'deployment', '--timeout=90s')
  kubernetes.pathways('install', '--wait', timeout=180)
  return kubernetes


@pytest.fixture(scope='session')
def notebook_image(kubernetes):
  """docker.io/jupyter/base-notebook, as far as the document uses it."""
  archive = run([ROOT / 'tests/kubernetes/images/build'], env=os.environ, timeout=600).split()[-1]
  run([CLUSTER, 'load', archive], env=os.environ, timeout=300)


@pytest.fixture
def screenshots():
  """A folder for pictures of what went wrong; it stays after the tests."""
  folder = pathlib.Path(os.environ.get('PATHWAYS_TEST_OUTPUT', ROOT / 'build/test-output'))
  folder.mkdir(parents=True, exist_ok=True)
  return folder
