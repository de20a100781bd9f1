"""Collectives over parts of the devices: mesh axes, groups, subsets, any order, inside and across workers and slices."""
import jax
import numpy as np
import pytest
from jax import lax

from client import spmd

MESHES = {'slice-major': (2, 8), 'across-slices': (8, 2), 'square': (4, 4)}


@pytest.fixture(params=MESHES.values(), ids=MESHES.keys())
def grid(request, devices):
  """A two-dimensional mesh ('a', 'b') over both slices."""
  return spmd.mesh_of(devices, request.param, ('a', 'b'))


def blocks_for(mesh, *block, seed=1):
  return spmd.integers(seed, (*mesh.devices.shape, *block))


@pytest.mark.parametrize('axes', ['a', 'b', ('a', 'b'), ('b', 'a')], ids=str)
def test_psum_over_axes(grid, axes):
  x = blocks_for(grid, 3, 5)
  dims = tuple('ab'.index(a) for a in axes)
  out = spmd.run(lambda x: lax.psum(x, axes), grid, x)
  np.testing.assert_array_equal(out, np.broadcast_to(x.sum(dims, keepdims=True), x.shape))


@pytest.mark.parametrize('axes', ['a', 'b', ('a', 'b'), ('b', 'a')], ids=str)
def test_all_gather_over_axes(grid, axes):
  x = blocks_for(grid, 3)
  out = spmd.run(lambda x: lax.all_gather(x, axes), grid, x)
  if axes == 'a':
    expected = np.broadcast_to(np.swapaxes(x, 0, 1)[None], out.shape)
  elif axes == 'b':
    expected = np.broadcast_to(x[:, None], out.shape)
  else:
    order = x if axes == ('a', 'b') else np.swapaxes(x, 0, 1)
    expected = np.broadcast_to(order.reshape(-1, 3), out.shape)
  np.testing.assert_array_equal(out, expected)


@spmd.not_on_cpu('it does not implement collective-broadcast')
@pytest.mark.parametrize('axis', ['a', 'b'])
@pytest.mark.usefixtures('pbroadcast_everywhere')
def test_pbroadcast_over_an_axis(grid, axis):
  x = blocks_for(grid, 3)
  y = np.moveaxis(spmd.run(lambda x: lax.pbroadcast(x, axis, 1), grid, x), 'ab'.index(axis), 0)
  expected = np.moveaxis(x, 'ab'.index(axis), 0)[1]
  np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))


@pytest.mark.parametrize('axis', ['a', 'b'])
def test_scatter_exchange_and_permute_over_an_axis(grid, axis):
  dim = 'ab'.index(axis)
  n = grid.devices.shape[dim]
  x = blocks_for(grid, n, 3)

  def f(x):
    shift = [(i, (i + 1) % n) for i in range(n)]
    return lax.psum_scatter(x, axis), lax.all_to_all(x, axis, 0, 0), lax.ppermute(x, axis, shift)

  scattered, exchanged, shifted = spmd.run(f, grid, x)
  y = np.moveaxis(x, dim, 0)  # [member, group, n, 3]
  np.testing.assert_array_equal(np.moveaxis(scattered, dim, 0), np.moveaxis(y.sum(0), 1, 0))
  np.testing.assert_array_equal(np.moveaxis(exchanged, dim, 0), np.swapaxes(y, 0, 2))
  np.testing.assert_array_equal(shifted, np.roll(x, 1, axis=dim))


@pytest.mark.parametrize('axes', ['x', 'y', 'z', ('x', 'z'), ('z', 'x'), ('y', 'z'), ('x', 'y', 'z')], ids=str)
def test_axes_of_a_cube(devices, axes):
  """2 slices x 2 workers x 4 devices: every axis and every pair stays in or crosses a different boundary."""
  mesh = spmd.mesh_of(devices, (2, 2, 4), ('x', 'y', 'z'))
  x = blocks_for(mesh, 4)
  dims = tuple('xyz'.index(a) for a in axes)
  summed, gathered = spmd.run(lambda x: (lax.psum(x, axes), lax.all_gather(x, axes)), mesh, x)
  np.testing.assert_array_equal(summed, np.broadcast_to(x.sum(dims, keepdims=True), x.shape))
  order = np.moveaxis(x, dims, range(len(dims)))
  rest = order.shape[len(dims):-1]
  members = order.reshape(-1, *rest, 4)  # [member, *rest, 4]
  expected = np.moveaxis(members, 0, -2)  # [*rest, member, 4]
  for d in sorted(dims):
    expected = np.expand_dims(expected, d)
  np.testing.assert_array_equal(gathered, np.broadcast_to(expected, gathered.shape))


GROUPS = {
    'halves': [list(range(8)), list(range(8, 16))],
    'interleaved': [list(range(0, 16, 2)), list(range(1, 16, 2))],
    'pairs-across-slices': [[i, i + 8] for i in range(8)],
    'pairs-reversed': [[15 - i, i] for i in range(8)],
    'fours-in-disorder': [[9, 2, 14, 5], [0, 1, 8, 15], [3, 7, 11, 12], [13, 10, 6, 4]],
    'ones': [[i] for i in range(16)],
}


@pytest.mark.parametrize('groups', GROUPS.values(), ids=GROUPS.keys())
def test_axis_index_groups(devices, groups):
  mesh = spmd.mesh_of(devices, (16,), ('i',))
  size = len(groups[0])
  x = spmd.integers(3, (16, size, 3))

  def f(x):
    kw = dict(axis_index_groups=groups)
    return (lax.all_gather(x, 'i', **kw), lax.all_to_all(x, 'i', 0, 0, **kw), lax.psum_scatter(x, 'i', **kw),
            lax.psum(x, 'i', **kw), lax.pmax(x, 'i', **kw))

  gathered, exchanged, scattered, summed, largest = spmd.run(f, mesh, x)
  for group in groups:
    for place, member in enumerate(group):
      np.testing.assert_array_equal(gathered[member], x[group])
      np.testing.assert_array_equal(exchanged[member], x[group, place])
      np.testing.assert_array_equal(scattered[member], x[group, place].sum(0))
      np.testing.assert_array_equal(summed[member], x[group].sum(0))
      np.testing.assert_array_equal(largest[member], x[group].max(0))


SUBSETS = {
    'two-in-a-worker': [1, 3],
    'two-of-two-slices': [2, 13],
    'three': [15, 0, 6],
    'five-of-every-worker': [12, 8, 4, 0, 1],
    'reversed-slice': list(range(15, 7, -1)),
    'all-shuffled': [7, 12, 0, 3, 15, 9, 1, 14, 2, 8, 11, 5, 13, 6, 10, 4],
    'one': [11],
}


@pytest.mark.parametrize('subset', SUBSETS.values(), ids=SUBSETS.keys())
def test_subsets_in_any_order(devices, subset):
  n = len(subset)
  mesh = spmd.mesh_of([devices[i] for i in subset], (n,), ('i',))
  x = spmd.integers(4, (n, n, 3))

  def f(x):
    shift = [(i, (i + 1) % n) for i in range(n)]
    return (lax.psum(x, 'i'), lax.all_gather(x, 'i'), lax.ppermute(x, 'i', shift), lax.all_to_all(x, 'i', 0, 0),
            lax.axis_index('i'))

  summed, gathered, shifted, exchanged, index = spmd.run(f, mesh, x)
  np.testing.assert_array_equal(summed, np.broadcast_to(x.sum(0), x.shape))
  np.testing.assert_array_equal(gathered, np.broadcast_to(x, gathered.shape))
  np.testing.assert_array_equal(shifted, np.roll(x, 1, axis=0))
  np.testing.assert_array_equal(exchanged, np.swapaxes(x, 0, 1))
  np.testing.assert_array_equal(index, np.arange(n))


def test_shuffled_grid(devices):
  """A mesh whose rows mix workers and slices."""
  order = SUBSETS['all-shuffled']
  mesh = spmd.mesh_of([devices[i] for i in order], (4, 4), ('a', 'b'))
  x = blocks_for(mesh, 3)
  out = spmd.run(lambda x: (lax.psum(x, 'a'), lax.psum(x, 'b')), mesh, x)
  np.testing.assert_array_equal(out[0], np.broadcast_to(x.sum(0, keepdims=True), x.shape))
  np.testing.assert_array_equal(out[1], np.broadcast_to(x.sum(1, keepdims=True), x.shape))


def test_both_slices_at_once(slices):
  """Two programs, one per slice, in flight together: neither waits for the other."""
  xs = [spmd.integers(5 + s, (8, 100)) for s in range(2)]
  meshes = [spmd.mesh_of(s, (8,), ('i',)) for s in slices]
  spec = jax.sharding.PartitionSpec('i')
  fs = [jax.jit(jax.shard_map(lambda x: lax.psum(x, 'i'), mesh=m, in_specs=spec, out_specs=spec)) for m in meshes]
  outs = [spmd.put(x, m) for x, m in zip(xs, meshes)]
  for _ in range(3):
    outs = [f(o) for f, o in zip(fs, outs)]
  for out, x in zip(outs, xs):
    np.testing.assert_array_equal(out, np.broadcast_to(x.sum(0) * 64, x.shape))
