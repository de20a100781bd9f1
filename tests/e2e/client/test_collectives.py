"""Every collective that JAX can emit, against numpy, over both slices."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from client import spmd

N = 16


@pytest.fixture(scope='module')
def ring(devices):
  return spmd.mesh_of(devices, (N,), ('i',))


@pytest.fixture(scope='module')
def blocks():
  return spmd.integers(1, (N, 4, 32))


# Reductions ---------------------------------------------------------------------------------------------------------

REDUCTIONS = [(lax.psum, np.sum), (lax.pmax, np.max), (lax.pmin, np.min), (lax.pmean, np.mean)]


@pytest.mark.parametrize('collective,reference', REDUCTIONS, ids=lambda f: f.__name__)
def test_reduction(ring, blocks, collective, reference):
  out = spmd.run(lambda x: collective(x, 'i'), ring, blocks)
  np.testing.assert_array_equal(out, np.broadcast_to(reference(blocks, axis=0), blocks.shape))


@pytest.mark.parametrize('shape', [(), (1,), (3,), (7, 5), (1000003,)], ids=str)
def test_psum_of_odd_sizes(ring, shape):
  x = spmd.integers(2, (N, *shape))
  out = spmd.run(lambda x: lax.psum(x, 'i'), ring, x)
  np.testing.assert_array_equal(out, np.broadcast_to(x.sum(0), x.shape))


def test_psum_of_empty(ring):
  out = spmd.run(lambda x: lax.psum(x, 'i'), ring, np.zeros((N, 0, 3), np.float32))
  assert out.shape == (N, 0, 3)


def test_psum_of_tree(ring):
  """One variadic all-reduce over different types and shapes."""
  tree = {'a': spmd.integers(3, (N, 5)), 'b': [spmd.integers(4, (N, 2, 3), dtype=np.int32), spmd.integers(5, (N,))]}
  leaves, shape = jax.tree.flatten(tree)
  out = spmd.run(lambda *x: lax.psum(jax.tree.unflatten(shape, x), 'i'), ring, *leaves)
  assert jax.tree.structure(out) == shape
  for got, x in zip(jax.tree.leaves(out), leaves):
    np.testing.assert_array_equal(got, np.broadcast_to(x.sum(0), x.shape))


def test_pmax_of_tree(ring):
  x, y = spmd.integers(3, (N, 5)), spmd.integers(4, (N, 7), dtype=np.int32)
  out = spmd.run(lambda x, y: lax.pmax((x, y), 'i'), ring, x, y)
  np.testing.assert_array_equal(out[0], np.broadcast_to(x.max(0), x.shape))
  np.testing.assert_array_equal(out[1], np.broadcast_to(y.max(0), y.shape))


def test_psum_of_constant(ring):
  out = spmd.run(lambda x: x + lax.psum(1, 'i'), ring, np.zeros((N,), np.int32))
  np.testing.assert_array_equal(out, np.full((N,), N))


def test_axis_index(ring):
  out = spmd.run(lambda x: x + lax.axis_index('i'), ring, np.zeros((N,), np.int32))
  np.testing.assert_array_equal(out, np.arange(N))


def test_infinities(ring):
  x = spmd.integers(6, (N, 8))
  x[5, 1], x[7, 2] = np.inf, -np.inf
  np.testing.assert_array_equal(spmd.run(lambda x: lax.pmax(x, 'i'), ring, x)[9], x.max(0))
  np.testing.assert_array_equal(spmd.run(lambda x: lax.psum(x, 'i'), ring, x)[9], x.sum(0))


@spmd.not_on_cpu('its all-reduce drops NaNs, against what HLO says of maximum')
@pytest.mark.parametrize('position', [0, 3, 15])
def test_nan_wins(ring, position):
  x = spmd.integers(6, (N, 8))
  x[position, 0] = np.nan
  for collective in (lax.psum, lax.pmax, lax.pmin):
    out = spmd.run(lambda x: collective(x, 'i'), ring, x)
    assert np.isnan(out[:, 0]).all() and np.isfinite(out[:, 1:]).all(), collective.__name__


# Gathering, scattering, moving --------------------------------------------------------------------------------------


@pytest.mark.parametrize('axis', [0, 1, 2])
def test_all_gather(ring, blocks, axis):
  out = spmd.run(lambda x: lax.all_gather(x, 'i', axis=axis), ring, blocks)
  np.testing.assert_array_equal(out, np.broadcast_to(np.moveaxis(blocks, 0, axis), out.shape))
  assert out.shape == (N, *np.moveaxis(blocks, 0, axis).shape)


@pytest.mark.parametrize('axis', [0, 1])
def test_all_gather_tiled(ring, blocks, axis):
  out = spmd.run(lambda x: lax.all_gather(x, 'i', axis=axis, tiled=True), ring, blocks)
  expected = np.concatenate(list(blocks), axis=axis)
  np.testing.assert_array_equal(out, np.broadcast_to(expected, (N, *expected.shape)))


def test_all_gather_of_scalars(ring):
  x = spmd.integers(7, (N,))
  np.testing.assert_array_equal(spmd.run(lambda x: lax.all_gather(x, 'i'), ring, x), np.broadcast_to(x, (N, N)))


@pytest.mark.parametrize('axis', [0, 1])
def test_psum_scatter(ring, axis):
  x = spmd.integers(8, (N, N, N, 3))
  out = spmd.run(lambda x: lax.psum_scatter(x, 'i', scatter_dimension=axis), ring, x)
  np.testing.assert_array_equal(out, np.moveaxis(x.sum(0), axis, 0))


@pytest.mark.parametrize('axis', [0, 1])
def test_psum_scatter_tiled(ring, axis):
  x = spmd.integers(9, (N, 2 * N, 3 * N))
  out = spmd.run(lambda x: lax.psum_scatter(x, 'i', scatter_dimension=axis, tiled=True), ring, x)
  np.testing.assert_array_equal(out, np.stack(np.split(x.sum(0), N, axis=axis)))


PERMUTATIONS = {
    'shift': [(i, (i + 1) % N) for i in range(N)],
    'back': [(i, (i - 3) % N) for i in range(N)],
    'reverse': [(i, N - 1 - i) for i in range(N)],
    'swap-slices': [(i, (i + 8) % N) for i in range(N)],
    'one': [(15, 0)],
    'self': [(4, 4)],
    'some': [(0, 9), (9, 3), (3, 12)],
}


@pytest.mark.parametrize('pairs', PERMUTATIONS.values(), ids=PERMUTATIONS.keys())
def test_ppermute(ring, blocks, pairs):
  out = spmd.run(lambda x: lax.ppermute(x, 'i', pairs), ring, blocks)
  expected = np.zeros_like(blocks)
  for source, target in pairs:
    expected[target] = blocks[source]
  np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize('split,concat', [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)])
def test_all_to_all(ring, split, concat):
  x = spmd.integers(10, (N, N, N, 3))
  out = spmd.run(lambda x: lax.all_to_all(x, 'i', split, concat), ring, x)
  parts = np.moveaxis(x, 1 + split, 1)  # [sender, receiver, rest]
  np.testing.assert_array_equal(out, np.stack([np.stack(list(parts[:, r]), axis=concat) for r in range(N)]))


@pytest.mark.parametrize('split,concat', [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all_tiled(ring, split, concat):
  x = spmd.integers(11, (N, 2 * N, N, 3))
  out = spmd.run(lambda x: lax.all_to_all(x, 'i', split, concat, tiled=True), ring, x)
  parts = [np.split(block, N, axis=split) for block in x]
  np.testing.assert_array_equal(out, np.stack([np.concatenate([p[r] for p in parts], axis=concat) for r in range(N)]))


@spmd.not_on_cpu('it does not implement collective-broadcast')
@pytest.mark.parametrize('source', [0, 5, 15])
@pytest.mark.usefixtures('pbroadcast_everywhere')
def test_pbroadcast(ring, blocks, source):
  out = spmd.run(lambda x: lax.pbroadcast(x, 'i', source), ring, blocks)
  np.testing.assert_array_equal(out, np.broadcast_to(blocks[source], blocks.shape))


@spmd.not_on_cpu('it does not implement ragged-all-to-all')
def test_ragged_all_to_all(ring):
  """Each device sends a different number of rows to each other one; rows that nobody sends keep their old contents."""
  rng = np.random.default_rng(12)
  sizes = rng.integers(0, 4, (N, N)).astype(np.int32)  # [sender, receiver]
  sizes[3, :] = 0
  sizes[:, 6] = 0
  rows, room = int(sizes.sum(1).max()), int(sizes.sum(0).max()) + 2
  operand = spmd.integers(13, (N, rows, 5))
  output = np.full((N, room, 5), -100, np.float32)
  input_offsets = (np.cumsum(sizes, 1) - sizes).astype(np.int32)
  output_offsets = (np.cumsum(sizes, 0) - sizes).astype(np.int32)  # where the sender's rows begin at the receiver
  received = np.ascontiguousarray(sizes.T)
  expected = output.copy()
  for s in range(N):
    for r in range(N):
      i, o, n = input_offsets[s, r], output_offsets[s, r], sizes[s, r]
      expected[r, o:o + n] = operand[s, i:i + n]
  out = spmd.run(lambda *a: lax.ragged_all_to_all(*a, axis_name='i'), ring, operand, output, input_offsets, sizes,
                 output_offsets, received)
  np.testing.assert_array_equal(out, expected)


def test_chain_of_different_collectives(ring):
  """Several collectives in one program, each depending on the one before."""
  x = spmd.integers(14, (N, N, 6))

  def f(x):
    x = lax.psum_scatter(x, 'i')
    x = lax.ppermute(x, 'i', [(i, (i + 5) % N) for i in range(N)])
    x = lax.all_gather(x, 'i')
    x = lax.all_to_all(x, 'i', 0, 0)
    return x - lax.pmax(x, 'i')

  scattered = np.roll(x.sum(0), 5, axis=0)  # [device, 6]
  exchanged = np.broadcast_to(scattered[:, None], (N, N, 6))  # [device, sender, 6]: sender's block for this device
  np.testing.assert_array_equal(spmd.run(f, ring, x), exchanged - exchanged.max(0))


def test_independent_collectives_in_one_program(ring):
  x = spmd.integers(15, (N, N, 6))

  def f(x):
    shift = [(i, (i + 1) % N) for i in range(N)]
    return [lax.psum(x, 'i'), lax.pmax(x, 'i'), lax.ppermute(x, 'i', shift), lax.all_to_all(x, 'i', 0, 0)]

  out = spmd.run(f, ring, x)
  for got, expected in zip(out, [np.broadcast_to(x.sum(0), x.shape), np.broadcast_to(x.max(0), x.shape),
                                 np.roll(x, 1, axis=0), np.swapaxes(x, 0, 1)]):
    np.testing.assert_array_equal(got, expected)
