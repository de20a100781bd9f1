"""Memory kinds: arrays and programs whose data lie in the memory of the device's host."""
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

from client import spmd

HOST_KINDS = ['pinned_host', 'unpinned_host']


@pytest.fixture(scope='module')
def mesh(devices):
  return spmd.mesh_of(devices, (4, 4), ('x', 'y'))


def each(devices, mesh):
  return SingleDeviceSharding(devices[3]), NamedSharding(mesh, P('x', 'y')), NamedSharding(mesh, P())


@pytest.mark.cluster
def test_devices_have_them(devices):
  for device in devices:
    assert [m.kind for m in device.addressable_memories()] == ['device', 'pinned_host', 'unpinned_host']
    assert device.default_memory().kind == 'device'


@pytest.mark.parametrize('kind', HOST_KINDS)
def test_from_kind_to_kind(devices, mesh, kind):
  x = spmd.integers(1, (16, 8))
  for sharding in each(devices, mesh):
    host = sharding.with_memory_kind(kind)
    y = jax.device_put(x, host)
    assert y.sharding == host
    np.testing.assert_array_equal(y, x)
    for other in HOST_KINDS + ['device']:
      z = jax.device_put(y, sharding.with_memory_kind(other))
      assert z.sharding.memory_kind == other
      np.testing.assert_array_equal(z, x)


@spmd.not_on_cpu('it gives away nothing between memories')
def test_donated_to_another_memory(devices, mesh):
  x = spmd.integers(2, (16, 8))
  for sharding in each(devices, mesh):
    y = jax.device_put(x, sharding)
    z = jax.device_put(y, sharding.with_memory_kind('pinned_host'), donate=True)
    assert y.is_deleted()
    np.testing.assert_array_equal(z, x)
    back = jax.device_put(z, sharding, donate=True)
    assert z.is_deleted()
    np.testing.assert_array_equal(back + 1, x + 1)


def test_results_in_host_memory(devices, mesh):
  x = spmd.integers(3, (16, 8))
  for sharding in each(devices, mesh):
    host = sharding.with_memory_kind('pinned_host')
    y, z = jax.jit(lambda x: (x * 2, x + 1), out_shardings=(host, sharding))(jax.device_put(x, sharding))
    assert y.sharding.memory_kind == 'pinned_host' and z.sharding.memory_kind == 'device'
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(z, x + 1)


def test_arguments_in_host_memory(devices, mesh):
  x = spmd.integers(4, (16, 8))
  for sharding in each(devices, mesh):
    host = sharding.with_memory_kind('pinned_host')

    def f(y, sharding=sharding):
      return jax.device_put(y, sharding) * 2

    y = jax.device_put(x, host)
    z = jax.jit(f, in_shardings=host, out_shardings=sharding)(y)
    assert z.sharding.memory_kind == 'device'
    np.testing.assert_array_equal(z, x * 2)


def test_offloading_inside_a_program(devices, mesh):
  """There and back again within one program, as optimizers do with their state."""
  x = spmd.integers(5, (16, 8))
  for sharding in each(devices, mesh):
    host = sharding.with_memory_kind('pinned_host')

    def step(state, g, sharding=sharding, host=host):
      on_device = jax.device_put(state, sharding)
      return jax.device_put(on_device + g, host)

    f = jax.jit(step, in_shardings=(host, sharding), out_shardings=host, donate_argnums=0)
    state = jax.device_put(np.zeros_like(x), host)
    g = jax.device_put(x, sharding)
    for _ in range(3):
      state = f(state, g)
    assert state.sharding.memory_kind == 'pinned_host'
    np.testing.assert_array_equal(state, 3 * x)
