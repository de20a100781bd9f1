"""pathwaysutils' resharding: any sharding to any other, between slices, memories and numbers of devices."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

from client import spmd

pytestmark = pytest.mark.cluster


@pytest.fixture(scope='module', params=['ifrt', 'plugin'])
def reshard(request):
  """Both of pathwaysutils' ways: a request of the protocol, and a program of its own."""
  if request.param == 'ifrt':
    from pathwaysutils import reshard as module
    return module.reshard
  from pathwaysutils.experimental import reshard as module
  return module.reshard


@pytest.fixture(scope='module')
def shardings(devices, slices):
  """Shardings of a matrix of 48 x 32: other devices, other orders, other shapes, replicated in part and in whole."""
  return {
      'all': NamedSharding(spmd.mesh_of(devices, (4, 4), ('x', 'y')), P('x', 'y')),
      'all-reversed': NamedSharding(spmd.mesh_of(devices[::-1], (2, 8), ('a', 'b')), P('b', 'a')),
      'rows-of-slice-0': NamedSharding(spmd.mesh_of(slices[0], (8,), ('x',)), P('x')),
      'columns-of-slice-1': NamedSharding(spmd.mesh_of(slices[1], (2, 4), ('r', 'x')), P(None, 'x')),
      'replicated-on-slice-1': NamedSharding(spmd.mesh_of(slices[1], (8,), ('x',)), P()),
      'one': SingleDeviceSharding(devices[5]),
      'three': NamedSharding(spmd.mesh_of([devices[i] for i in (3, 9, 12)], (3,), ('x',)), P('x')),
      'pinned': NamedSharding(spmd.mesh_of(slices[0], (4, 2), ('x', 'y')), P('y', 'x'), memory_kind='pinned_host'),
  }


SOURCES = ['all', 'rows-of-slice-0', 'replicated-on-slice-1', 'one', 'pinned']


@pytest.mark.parametrize('source', SOURCES)
def test_to_every_other(reshard, shardings, source):
  x = spmd.integers(1, (48, 32))
  y = jax.device_put(x, shardings[source])
  for name, target in shardings.items():
    z = reshard(y, target)
    assert z.sharding == target and z.sharding.memory_kind == target.memory_kind, name
    for shard in z.addressable_shards:
      np.testing.assert_array_equal(shard.data, x[shard.index], err_msg=name)
    if target.memory_kind == 'device':
      np.testing.assert_array_equal(jax.jit(lambda z: z * 2)(z), x * 2, err_msg=name)
  np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize('dtype', ['bool', 'int8', 'float16', 'bfloat16', 'float8_e4m3fn', 'int4', 'complex64'])
def test_types(reshard, shardings, dtype):
  x = jnp.asarray(spmd.integers(2, (48, 32)) % 7).astype(dtype)
  y = reshard(jax.device_put(x, shardings['rows-of-slice-0']), shardings['columns-of-slice-1'])
  np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


@pytest.mark.parametrize('shape', [(), (16,), (0, 8), (8, 3, 16), (5, 16)], ids=str)
def test_shapes(reshard, slices, shape):
  x = spmd.integers(3, shape)
  spec = P(*['x' if n % 8 == 0 else None for n in shape[-1:]]) if len(shape) == 1 else P(*[None] * len(shape))
  source, target = (NamedSharding(spmd.mesh_of(s, (8,), ('x',)), p) for s, p in zip(slices, (P(), spec)))
  np.testing.assert_array_equal(reshard(jax.device_put(x, source), target), x)


def test_donation_and_trees(reshard, shardings):
  tree = {'w': spmd.integers(4, (48, 32)), 'b': [spmd.integers(5, (48, 64)), np.float32(2)], 'k': jax.random.key(1)}
  kept = jax.tree.map(np.asarray, {'w': tree['w'], 'b': tree['b']})
  arrays = jax.tree.map(lambda x: jax.device_put(x, shardings['rows-of-slice-0']) if getattr(x, 'shape', ()) else x, tree)
  result = reshard(arrays, shardings['replicated-on-slice-1'], donate=True)
  assert arrays['w'].is_deleted() and arrays['b'][0].is_deleted()
  jax.tree.map(np.testing.assert_array_equal, {'w': result['w'], 'b': result['b']}, kept)
  assert result['k'].sharding.device_set == shardings['replicated-on-slice-1'].device_set


def test_chains_without_waiting(reshard, shardings):
  """What is given away may be on its way still, also into a computation."""
  x = spmd.integers(6, (48, 32))
  y = jax.device_put(x, shardings['all'])
  f = jax.jit(lambda y: y + 1)
  for name in ('columns-of-slice-1', 'rows-of-slice-0', 'one', 'all-reversed'):
    y = f(reshard(y, shardings[name], donate=True))
  np.testing.assert_array_equal(y, x + 4)


def test_failed_arrays_stay_failed(shardings):
  from pathwaysutils import reshard as module
  huge = jax.jit(lambda x: jnp.broadcast_to(x, (1 << 38,)) + lax.iota(jnp.float32, 1 << 38))
  y = huge(jax.device_put(np.float32(1), list(shardings['one'].device_set)[0]))
  y = jax.jit(lambda y: y[:48 * 32].reshape(48, 32))(y)
  z = module.reshard(y, shardings['columns-of-slice-1'])
  with pytest.raises(jax.errors.JaxRuntimeError, match='RESOURCE_EXHAUSTED'):
    jax.block_until_ready(z)


def test_with_an_intermediate_sharding(slices):
  """Uses split_by_mesh_axis: a part of the source has all the values."""
  from pathwaysutils import reshard as module
  x = spmd.integers(7, (64, 32))
  source = NamedSharding(spmd.mesh_of(slices[0], (8, 1), ('fsdp', 'tp')), P('fsdp', 'tp'))
  target = NamedSharding(spmd.mesh_of(slices[1][:4], (1, 4), ('fsdp', 'tp')), P('fsdp', 'tp'))
  y = jax.device_put(x, source)
  z = module.reshard_with_intermediate_sharding(y, source, target)
  assert z.sharding == target
  np.testing.assert_array_equal(z, x)
