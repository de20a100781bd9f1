"""Fixtures for tests that run *inside* a JAX client.

These tests know nothing of the cluster: they use whatever backend JAX was given, as long as it shows at least 16 devices.
That is how the tests themselves are proved right: they also pass on JAX's own CPU backend (see ../README.md).
"""
import jax
import pytest

from client import spmd

if jax.config.jax_platforms == 'proxy':
  import pathwaysutils
  pathwaysutils.initialize()  # JAX before 0.12 knows the backend only so


@pytest.fixture(scope='session')
def devices():
  """The first 16 devices, in the order of jax.devices()."""
  found = jax.devices()
  assert len(found) >= 16, f'these tests need 16 devices, {len(found)} are there'
  return found[:16]


@pytest.fixture(scope='session')
def slices(devices):
  """The devices of the two slices: [8 devices, 8 devices]."""
  return spmd.by_slice(devices)


@pytest.fixture
def pbroadcast_everywhere():
  """JAX lowers lax.pbroadcast for GPUs only, though it is the same StableHLO operation for all; this lifts the limit."""
  from jax._src.interpreters import mlir
  from jax._src.lax import parallel
  mlir.register_lowering(parallel.pbroadcast_p, parallel._pbroadcast_lowering)


def pytest_collection_modifyitems(items):
  proxy = jax.config.jax_platforms == 'proxy'
  for item in items:
    if item.get_closest_marker('cluster') and not proxy:
      item.add_marker(pytest.mark.skip(reason='says something about the cluster, not about JAX'))
