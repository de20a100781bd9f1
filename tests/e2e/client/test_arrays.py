"""Arrays: from host data and back, copied, moved, donated, deleted; every layout of shards and of host memory."""
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

from client import spmd


@pytest.fixture(scope='module')
def mesh(devices):
  return spmd.mesh_of(devices, (4, 4), ('x', 'y'))


def place(x, mesh, *spec, **kw):
  return jax.device_put(x, NamedSharding(mesh, P(*spec), **kw))


# Host memory ---------------------------------------------------------------------------------------------------------

BASE = np.arange(24 * 36, dtype=np.float32).reshape(24, 36)
HOST_LAYOUTS = {
    'dense': BASE,
    'transposed': BASE.T,
    'fortran': np.asfortranarray(BASE),
    'column-slice': BASE[:, 3:17],
    'row-slice': BASE[5:20],
    'every-third': BASE[::2, ::3],
    'three-axes-permuted': BASE.reshape(4, 6, 36).transpose(2, 0, 1),
    'unaligned': np.frombuffer(b'x' + BASE.tobytes(), np.uint8)[1:].view(np.float32),
    'read-only': np.frombuffer(BASE.tobytes(), np.float32),
    'one-column': BASE[:, 7:8],
    'int64-narrowed': np.arange(20),
}


@pytest.mark.parametrize('x', HOST_LAYOUTS.values(), ids=HOST_LAYOUTS.keys())
def test_host_layouts(devices, x):
  y = jax.device_put(x, devices[6])
  np.testing.assert_array_equal(y, x)
  np.testing.assert_array_equal(jax.jit(lambda y: y + 1)(y), x + 1)


@pytest.mark.cluster
@pytest.mark.parametrize('x', [BASE[::-1], np.broadcast_to(BASE[:1], (10, 36))], ids=['reversed', 'broadcast'])
def test_strides_that_the_client_itself_refuses(devices, x):
  """The proxy client sends no such view; the user is told so at once, and a copy works."""
  with pytest.raises(jax.errors.JaxRuntimeError, match='UNIMPLEMENTED.*strides'):
    jax.device_put(x, devices[6])
  np.testing.assert_array_equal(jax.device_put(x.copy(), devices[6]), x)


@pytest.mark.parametrize('x', [BASE.T, np.asfortranarray(BASE), BASE[::2, ::3]], ids=['transposed', 'fortran', 'strided'])
def test_strided_host_memory_sharded(mesh, x):
  np.testing.assert_array_equal(place(x, mesh, 'x', 'y'), x)


@spmd.not_on_cpu('it goes on using the host memory')
def test_host_memory_may_change_once_the_array_is_ready(devices):
  x = np.arange(1 << 20, dtype=np.int32)
  y = jax.block_until_ready([jax.device_put(x, d) for d in devices[::5]])
  x[:] = -1
  for one in y:
    np.testing.assert_array_equal(one, np.arange(1 << 20))


@pytest.mark.parametrize('shape', [(), (1,), (0,), (3, 0, 2), (1, 1, 1, 1, 1, 1), (2,) * 10, (65537,)], ids=str)
def test_shapes(devices, shape):
  x = spmd.integers(1, shape)
  for d in (devices[0], devices[13]):
    y = jax.device_put(x, d)
    assert y.shape == shape and y.devices() == {d}
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(jax.jit(lambda y: y * 2)(y), x * 2)


def test_zero_size_sharded_and_gathered(mesh):
  x = np.zeros((8, 0, 4), np.float32)
  y = place(x, mesh, 'x', None, 'y')
  assert np.asarray(y).shape == (8, 0, 4)
  assert np.asarray(jax.jit(lambda y: jnp.concatenate([y, y]), out_shardings=NamedSharding(mesh, P()))(y)).shape == (16, 0, 4)
  assert float(jax.jit(jnp.sum)(y)) == 0


def test_python_scalars_and_constants(devices):
  assert int(jax.device_put(7, devices[4])) == 7
  assert float(jnp.float32(2.5)) == 2.5
  assert bool(jnp.array(True)) is True
  assert complex(jnp.array(1 + 2j)) == 1 + 2j
  np.testing.assert_array_equal(jnp.arange(10), np.arange(10))
  np.testing.assert_array_equal(jnp.eye(3), np.eye(3))


def test_sixty_four_bits(mesh, devices):
  with jax.enable_x64(True):
    x = np.array([2**53 + 1, -2**62, 5, 7], np.int64)
    y = place(x, mesh, 'x')
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(y + 1, x + 1)
    z = jax.device_put(np.float64(1) / 3, devices[2])
    assert z.dtype == np.float64 and float(z) == 1 / 3


# Shards --------------------------------------------------------------------------------------------------------------

SPECS = [(), ('x',), ('y',), (None, 'x'), ('x', 'y'), ('y', 'x'), (('x', 'y'),), (None, ('y', 'x'))]


@pytest.mark.parametrize('spec', SPECS, ids=str)
def test_every_shard_has_its_part(mesh, spec):
  x = spmd.integers(2, (32, 48))
  y = place(x, mesh, *spec)
  assert len(y.addressable_shards) == 16 and y.is_fully_addressable
  assert y.is_fully_replicated == (not spec)
  for shard in y.addressable_shards:
    np.testing.assert_array_equal(shard.data, x[shard.index])
    assert shard.data.devices() == {shard.device}
  np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize('spec', SPECS, ids=str)
def test_built_from_single_device_arrays(mesh, spec):
  x = spmd.integers(3, (32, 48))
  sharding = NamedSharding(mesh, P(*spec))
  parts = [jax.device_put(x[index], d) for d, index in sharding.addressable_devices_indices_map(x.shape).items()]
  y = jax.make_array_from_single_device_arrays(x.shape, sharding, parts)
  np.testing.assert_array_equal(y, x)
  np.testing.assert_array_equal(jax.jit(lambda y: y.sum(0))(y), x.sum(0))


def test_built_from_a_callback(mesh):
  x = spmd.integers(4, (16, 16))
  y = jax.make_array_from_callback(x.shape, NamedSharding(mesh, P('y', 'x')), lambda index: x[index])
  np.testing.assert_array_equal(y, x)


def test_parts_outlive_the_whole(mesh):
  x = spmd.integers(5, (16, 4))
  shards = [(s.index, s.data) for s in place(x, mesh, ('x', 'y')).addressable_shards]
  gc.collect()
  for index, data in shards:
    np.testing.assert_array_equal(data, x[index])


def test_indexing_and_iteration(mesh):
  x = spmd.integers(6, (16, 4))
  y = place(x, mesh, 'x', 'y')
  np.testing.assert_array_equal(y[3], x[3])
  np.testing.assert_array_equal(y[2:9, 1], x[2:9, 1])
  for row, expected in zip(y, x):
    np.testing.assert_array_equal(row, expected)


# Moving --------------------------------------------------------------------------------------------------------------

PAIRS = {'same': (3, 3), 'same-worker': (0, 2), 'same-slice': (1, 6), 'other-slice': (2, 13), 'back': (15, 0)}


@pytest.mark.parametrize('source,target', PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.parametrize('size', [0, 1, 1000, 3 << 20])
def test_between_devices(devices, source, target, size):
  x = spmd.integers(7, (size,))
  y = jax.device_put(x, devices[source])
  z = jax.device_put(y, devices[target])
  assert z.devices() == {devices[target]}
  np.testing.assert_array_equal(z, x)
  np.testing.assert_array_equal(y, x)


def test_a_copy_is_a_copy(devices):
  """The source may go at once; the copy to the same device is no alias that a donation could damage."""
  x = spmd.integers(8, (1000,))
  y = jax.device_put(x, devices[0])
  copies = [jax.device_put(y, d, may_alias=False) for d in devices]
  y.delete()
  for copy in copies:
    np.testing.assert_array_equal(jax.jit(lambda c: c + 1, donate_argnums=0)(copy), x + 1)


@pytest.mark.parametrize('target', SPECS, ids=str)
@pytest.mark.parametrize('source', SPECS, ids=str)
def test_between_layouts_of_a_mesh(mesh, source, target):
  x = spmd.integers(9, (32, 48))
  y = jax.device_put(place(x, mesh, *source), NamedSharding(mesh, P(*target)))
  assert y.sharding.is_equivalent_to(NamedSharding(mesh, P(*target)), 2)
  np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize('spec', SPECS, ids=str)
def test_between_slices(slices, spec):
  meshes = [spmd.mesh_of(s, (4, 2), ('x', 'y')) for s in slices]
  x = spmd.integers(10, (32, 48))
  y = jax.device_put(place(x, meshes[0], *spec), NamedSharding(meshes[1], P(*spec)))
  assert y.sharding.device_set == set(slices[1])
  np.testing.assert_array_equal(y, x)
  back = jax.device_put(y, NamedSharding(meshes[0], P(*spec)))
  assert back.sharding.device_set == set(slices[0])
  np.testing.assert_array_equal(back, x)


def test_between_meshes_of_other_shapes(devices, slices):
  """Other shapes, other orders, other numbers of devices."""
  x = spmd.integers(11, (32, 48))
  shardings = [
      NamedSharding(spmd.mesh_of(devices, (16,), ('a',)), P('a')),
      NamedSharding(spmd.mesh_of(devices[::-1], (2, 8), ('a', 'b')), P('b', 'a')),
      NamedSharding(spmd.mesh_of(slices[1], (8,), ('a',)), P(None, 'a')),
      SingleDeviceSharding(devices[5]),
      NamedSharding(spmd.mesh_of([devices[i] for i in (3, 9, 12, 0)], (2, 2), ('a', 'b')), P('a', 'b')),
      NamedSharding(spmd.mesh_of(slices[0], (8,), ('a',)), P()),
  ]
  for source in shardings:
    y = jax.device_put(x, source)
    for target in shardings:
      z = jax.device_put(y, target)
      assert z.sharding.device_set == target.device_set
      np.testing.assert_array_equal(z, x)


def test_one_put_of_many_arrays(devices, mesh):
  tree = {'a': spmd.integers(12, (16, 4)), 'b': [np.float32(3), spmd.integers(13, (8, 8), dtype=np.int32)], 'c': np.zeros((0,))}
  single = jax.device_put(tree, devices[7])
  spread = jax.device_put(single, NamedSharding(mesh, P()))
  for out in (single, spread):
    jax.tree.map(np.testing.assert_array_equal, out, tree)


def test_thousand_small_arrays(devices):
  xs = [np.full((k % 7,), k, np.float32) for k in range(1000)]
  ys = [jax.device_put(x, devices[k % 16]) for k, x in enumerate(xs)]
  for x, y in zip(xs, jax.device_get(ys)):
    np.testing.assert_array_equal(x, y)


def test_asynchronous_copies_to_the_host(mesh):
  ys = [place(spmd.integers(k, (64, 64)), mesh, 'x', 'y') * 2 for k in range(10)]
  for y in ys:
    y.copy_to_host_async()
  for k, y in enumerate(ys):
    np.testing.assert_array_equal(y, spmd.integers(k, (64, 64)) * 2)


# Memories ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', ['pinned_host', 'unpinned_host'])
def test_host_memory_kinds(devices, mesh, kind):
  x = spmd.integers(14, (16, 8))
  for device_sharding in (SingleDeviceSharding(devices[3]), NamedSharding(mesh, P('x', 'y'))):
    host_sharding = device_sharding.with_memory_kind(kind)
    y = jax.device_put(x, host_sharding)
    assert y.sharding.memory_kind == kind
    np.testing.assert_array_equal(y, x)
    z = jax.device_put(y, device_sharding)
    assert z.sharding.memory_kind == 'device'
    np.testing.assert_array_equal(z + 1, x + 1)
    again = jax.device_put(z, host_sharding)
    assert again.sharding.memory_kind == kind
    np.testing.assert_array_equal(again, x)


def test_pinned_host_to_another_slice(slices):
  x = spmd.integers(15, (64, 8))
  source, target = (NamedSharding(spmd.mesh_of(s, (8,), ('x',)), P('x')) for s in slices)
  y = jax.device_put(jax.device_put(x, source.with_memory_kind('pinned_host')), target.with_memory_kind('pinned_host'))
  assert y.sharding.memory_kind == 'pinned_host' and y.sharding.device_set == set(slices[1])
  np.testing.assert_array_equal(y, x)


# Ends ----------------------------------------------------------------------------------------------------------------


def test_delete(devices, mesh):
  for y in (jax.device_put(BASE, devices[1]), place(BASE, mesh, 'x')):
    z = y + 1
    y.delete()
    assert y.is_deleted()
    with pytest.raises(RuntimeError, match='deleted'):
      np.asarray(y)
    with pytest.raises((RuntimeError, ValueError), match='deleted'):
      jax.jit(lambda y: y + 1)(y)
    y.delete()  # twice is nothing
    np.testing.assert_array_equal(z, BASE + 1)


def test_donation(devices, mesh):
  f = jax.jit(lambda a, b: (a + b, b * 2), donate_argnums=0)
  for sharding in (SingleDeviceSharding(devices[8]), NamedSharding(mesh, P('x', 'y'))):
    x = spmd.integers(16, (16, 16))
    a, b = jax.device_put(x, sharding), jax.device_put(x + 1, sharding)
    added, doubled = f(a, b)
    assert a.is_deleted() and not b.is_deleted()
    np.testing.assert_array_equal(added, 2 * x + 1)
    np.testing.assert_array_equal(doubled, 2 * x + 2)
    with pytest.raises((RuntimeError, ValueError), match='deleted|donated'):
      np.asarray(a)


@spmd.not_on_cpu('it crashes')
def test_a_donated_array_as_an_argument(devices, mesh):
  f = jax.jit(lambda a: a + 1, donate_argnums=0)
  for sharding in (SingleDeviceSharding(devices[8]), NamedSharding(mesh, P('x', 'y'))):
    a = jax.device_put(np.ones((16, 16), np.float32), sharding)
    b = f(a)
    for use in (f, lambda a: a * 2):
      with pytest.raises((RuntimeError, ValueError), match='deleted|donated'):
        jax.block_until_ready(use(a))
    np.testing.assert_array_equal(f(b), np.full((16, 16), 3))


def test_donation_in_a_chain(mesh):
  """A training loop's shape: every step gives its state away, none is awaited."""
  f = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
  state = {'w': place(np.zeros((16, 64), np.float32), mesh, 'x', 'y'), 'n': place(np.int32(0), mesh)}
  for _ in range(50):
    state = f(state)
  np.testing.assert_array_equal(state['w'], np.full((16, 64), 50))
  assert int(state['n']) == 50


def test_donation_with_a_shape_that_fits_nothing(devices):
  x = jax.device_put(BASE, devices[0])
  total = jax.jit(lambda x: x.sum(), donate_argnums=0)(x)
  assert float(total) == BASE.astype(np.float64).sum()


def test_what_is_offered_and_not_used_stays(mesh):
  x = place(BASE[:, :32], mesh, 'x', 'y')
  jax.block_until_ready(jax.jit(lambda x: x @ x.T, donate_argnums=0)(x))
  assert not x.is_deleted()
  np.testing.assert_array_equal(x, BASE[:, :32])


def test_a_result_may_be_an_argument(devices, mesh):
  x = place(BASE[:, :32], mesh, 'x', 'y')
  same, other = jax.jit(lambda x: (x, x + 1))(x)
  x.delete()
  np.testing.assert_array_equal(same, BASE[:, :32])
  np.testing.assert_array_equal(other, BASE[:, :32] + 1)


def test_readiness(devices):
  y = jax.jit(lambda x: x @ x)(jax.device_put(np.ones((300, 300), np.float32), devices[10]))
  jax.block_until_ready(y)
  assert y.is_ready()


def test_freed_memory_can_be_used_again(devices):
  """A loop that makes far more than fits at once, if nothing were freed."""
  for k in range(40):
    y = jax.device_put(np.full((16 << 20,), k, np.uint8), devices[k % 2])
    assert int(jnp.max(y)) == k
    del y
