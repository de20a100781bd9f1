"""Layouts of arrays on their devices: what a user asks for is what arrays, copies and programs have."""
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

try:
  from jax.experimental.layout import Format, Layout
except ImportError:  # before JAX 0.7
  from jax.experimental.layout import DeviceLocalLayout as Layout, Layout as Format

from client import spmd


@pytest.fixture(scope='module')
def mesh(devices):
  return spmd.mesh_of(devices, (4, 4), ('x', 'y'))


def order(array):
  return tuple(array.format.layout.major_to_minor)


ORDERS = [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)]


@pytest.mark.parametrize('major_to_minor', ORDERS, ids=str)
def test_host_data_and_back(devices, mesh, major_to_minor):
  x = spmd.integers(1, (8, 12, 6))
  for sharding in (SingleDeviceSharding(devices[9]), NamedSharding(mesh, P('x', 'y')), NamedSharding(mesh, P())):
    y = jax.device_put(x, Format(Layout(major_to_minor), sharding))
    assert order(y) == major_to_minor
    np.testing.assert_array_equal(y, x)
    for shard in y.addressable_shards:
      np.testing.assert_array_equal(shard.data, x[shard.index])
    np.testing.assert_array_equal(y[3:5, 2], x[3:5, 2])


@spmd.not_on_cpu('its programs read the copies in the wrong order')
def test_between_devices_and_slices(devices):
  """A copy has the layout of what it is a copy of."""
  x = spmd.integers(2, (32, 48))
  y = jax.device_put(x, Format(Layout((1, 0)), SingleDeviceSharding(devices[1])))
  for k in (0, 6, 13):
    z = jax.device_put(y, devices[k])
    np.testing.assert_array_equal(z, x)
    np.testing.assert_array_equal(jax.jit(lambda z: z + 1)(z), x + 1)


def test_into_programs_and_out(devices, mesh):
  x = spmd.integers(3, (32, 48))
  for sharding in (SingleDeviceSharding(devices[2]), NamedSharding(mesh, P('x', 'y'))):
    columns = Format(Layout((1, 0)), sharding)
    y = jax.jit(lambda x: x * 2, out_shardings=columns)(jax.device_put(x, sharding))
    assert order(y) == (1, 0)
    np.testing.assert_array_equal(y, x * 2)
    z = jax.jit(lambda y: y + 1, in_shardings=columns, out_shardings=sharding)(y)
    np.testing.assert_array_equal(z, x * 2 + 1)
    # Whoever names no layout takes what comes.
    np.testing.assert_array_equal(jax.jit(lambda y: y @ y.T)(y), (x * 2) @ (x * 2).T)


def test_to_host_memory_and_back(devices):
  x = spmd.integers(4, (16, 24))
  sharding = SingleDeviceSharding(devices[3])
  y = jax.device_put(x, Format(Layout((1, 0)), sharding))
  for kind in ('pinned_host', 'unpinned_host'):
    z = jax.device_put(y, sharding.with_memory_kind(kind))
    np.testing.assert_array_equal(z, x)
    np.testing.assert_array_equal(jax.device_put(z, sharding), x)
