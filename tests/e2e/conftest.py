"""Clusters for the tests: one for the session that every client shares, and fresh ones for tests that break things."""
import os
import pathlib
import subprocess
import sys

import pytest

from cluster import PATHWAYS, Cluster

# What an unmodified user runs first, word for word.
FIRST_CLIENT = 'import pathwaysutils; import jax; import pprint; pathwaysutils.initialize(); pprint.pprint(jax.devices())'


def _ended(cluster):
  """Takes a cluster down, and insists that nothing of it stays behind."""
  done = cluster.down()
  left = cluster.processes()
  for process in left:
    process.kill()
  assert not left, f'left behind after `pathways down`: {left}\n{done.stdout}'
  reports = cluster.sanitizer_reports()
  assert not reports, reports


@pytest.fixture(scope='session')
def cluster(tmp_path_factory):
  """The shared cluster: two slices of v5p-16. `first_output` holds what the mission's first command printed."""
  from client_process import run_command
  shared = Cluster(tmp_path_factory.mktemp('state'), f'shared-{os.getpid()}')
  try:
    shared.up_output = shared.up()
    code, shared.first_output = run_command(shared, [sys.executable, '-c', FIRST_CLIENT])
    assert code == 0, f'{shared.first_output}\n{shared.logs()}'
    yield shared
  finally:
    _ended(shared)


@pytest.fixture
def make_cluster(tmp_path):
  """Makes clusters of the test's own; they end with the test."""
  made = []

  def make(name='own', up=True, **arguments):
    one = Cluster(tmp_path, f'{name}-{os.getpid()}', **arguments)
    made.append(one)
    if up:
      one.up()
    return one

  yield make
  problems = []
  for one in made:
    try:
      _ended(one)
    except (AssertionError, subprocess.TimeoutExpired) as problem:
      problems.append(str(problem))
  assert not problems, '\n'.join(problems)


@pytest.fixture
def own_cluster(make_cluster):
  """A fresh cluster that the test may break."""
  return make_cluster()


def pytest_ignore_collect(collection_path, config):
  """The tests in client/ run inside a client (test_client.py starts them), unless this process is told to be one."""
  del config
  inside = os.environ.get('JAX_PLATFORMS') in ('proxy', 'cpu')
  here = pathlib.Path(__file__).parent
  if collection_path == here / 'client':
    return not inside
  if collection_path.parent == here and collection_path.name.startswith('test_'):
    return inside or None
  return None


def pytest_collection_modifyitems(items):
  needing = [i for i in items if {'cluster', 'own_cluster', 'make_cluster'} & set(getattr(i, 'fixturenames', ()))]
  if needing and not os.path.exists(PATHWAYS) and not needing[0].config.option.collectonly:
    pytest.exit(f'{PATHWAYS} is not there: build first (./dev build), or set PATHWAYS_BIN', returncode=4)
