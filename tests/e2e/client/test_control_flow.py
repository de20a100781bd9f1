"""Collectives inside loops and branches, many programs in flight, and results that never change from run to run."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from client import spmd

N = 16
SHIFT = [(i, (i + 1) % N) for i in range(N)]


@pytest.fixture(scope='module')
def ring(devices):
  return spmd.mesh_of(devices, (N,), ('i',))


def test_scan(ring):
  x = spmd.integers(1, (N, 8))

  def f(x):
    def step(carry, t):
      carry = lax.ppermute(carry, 'i', SHIFT) + t
      return carry, lax.pmax(carry, 'i')
    return lax.scan(step, x, jnp.arange(20.0))

  last, largest = spmd.run(f, ring, x)
  carry, steps = x, []
  for t in range(20):
    carry = np.roll(carry, 1, axis=0) + t
    steps.append(carry.max(0))
  np.testing.assert_array_equal(last, carry)
  np.testing.assert_array_equal(largest[11], np.stack(steps))


def test_long_loop_of_sums(ring):
  """Each repetition of the one collective instruction is matched on its own."""
  x = spmd.integers(2, (N,), dtype=np.int32)
  out = spmd.run(lambda x: lax.fori_loop(0, 200, lambda k, x: lax.psum(x, 'i') % 1009 + k + lax.axis_index('i'), x), ring, x)
  for k in range(200):
    x = x.sum() % 1009 + k + np.arange(N, dtype=np.int32)
  np.testing.assert_array_equal(out, x)


def test_while_with_a_collective_condition(ring):
  """All devices agree on when to stop, since the condition itself is a collective."""
  x = np.arange(N, dtype=np.float32)
  out = spmd.run(lambda x: lax.while_loop(lambda x: lax.psum(x, 'i') < 4000, lambda x: x * 2 + lax.pmin(x, 'i') + 1, x), ring, x)
  while x.sum() < 4000:
    x = x * 2 + x.min() + 1
  np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize('flag', [0, 1, 2])
def test_cond(ring, flag):
  """Every branch has a different collective; the branch is chosen by a value that only the running program knows."""
  x = spmd.integers(3, (N, N, 2))

  def f(x, flag):
    return lax.switch(flag, [lambda x: lax.psum(x, 'i'), lambda x: lax.ppermute(x, 'i', SHIFT),
                             lambda x: lax.all_to_all(x, 'i', 0, 0)], x)

  out = spmd.run(f, ring, x, np.full((N,), flag, np.int32))
  expected = [np.broadcast_to(x.sum(0), x.shape), np.roll(x, 1, 0), np.swapaxes(x, 0, 1)][flag]
  np.testing.assert_array_equal(out, expected)


def test_groups_that_loop_differently(devices):
  """Rows of the mesh run the same loop a different number of times: repetitions belong to the group, not to the program."""
  mesh = spmd.mesh_of(devices, (4, 4), ('a', 'b'))
  x = spmd.integers(4, (4, 4), 1, 5)

  def f(x):
    return lax.fori_loop(0, 3 + 5 * lax.axis_index('a'), lambda k, x: lax.psum(x, 'b') % 7 + 1, x)

  out = spmd.run(f, mesh, x)
  for row in range(4):
    for _ in range(3 + 5 * row):
      x[row] = x[row].sum() % 7 + 1
  np.testing.assert_array_equal(out, x)


def test_nested_loops(ring):
  x = spmd.integers(5, (N,), dtype=np.int32)

  def f(x):
    inner = lambda j, x: (lax.psum(x, 'i') + lax.axis_index('i')) % 101
    return lax.fori_loop(0, 4, lambda k, x: lax.fori_loop(0, k + 1, inner, lax.ppermute(x, 'i', SHIFT)), x)

  out = spmd.run(f, ring, x)
  for k in range(4):
    x = np.roll(x, 1)
    for _ in range(k + 1):
      x = (x.sum() + np.arange(N)) % 101
  np.testing.assert_array_equal(out, x)


def mapped(f, mesh):
  spec = P(*mesh.axis_names)
  return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


@spmd.not_on_cpu('its collectives deadlock when programs over different devices overlap')
def test_many_programs_in_flight(ring, slices, devices):
  """Hundreds of launches of several programs over overlapping devices, enqueued without waiting for any."""
  meshes = [ring, *(spmd.mesh_of(s, (8,), ('i',)) for s in slices), spmd.mesh_of([devices[1], devices[14]], (2,), ('i',))]
  fs = [mapped(lambda x: lax.pmax(x, 'i') + lax.axis_index('i'), m) for m in meshes]
  xs = [spmd.put(np.zeros(m.size, np.int32), m) for m in meshes]
  for _ in range(100):
    xs = [f(x) for f, x in zip(fs, xs)]
  for m, x in zip(meshes, xs):
    n = m.size
    np.testing.assert_array_equal(x, 99 * (n - 1) + np.arange(n))


def test_results_may_be_awaited_in_any_order(ring):
  f = mapped(lambda x: lax.psum(x, 'i'), ring)
  xs = [spmd.put(np.full((N, 100), k, np.float32), ring) for k in range(20)]
  outs = [f(x) for x in xs]
  for k in np.random.default_rng(6).permutation(20):
    np.testing.assert_array_equal(outs[k], np.full((N, 100), N * k, np.float32))


@pytest.mark.parametrize('name', ['float32', 'float16', 'bfloat16'])
@pytest.mark.parametrize('size', [5, 40000, 1 << 20])
def test_sums_are_the_same_every_time(ring, name, size):
  """The order of additions is fixed, so rounding is too: same bits on every device and in every run."""
  x = np.random.default_rng(7).standard_normal((N, size), np.float32).astype(jnp.dtype(name))
  placed = spmd.put(x, ring)
  sums = mapped(lambda x: lax.psum(x, 'i'), ring)
  first = np.asarray(sums(placed))
  assert (first == first[:1]).all(), 'devices disagree'
  for _ in range(4 if size > 100000 else 10):
    assert np.asarray(sums(placed)).tobytes() == first.tobytes()


def test_scattered_sums_are_the_same_every_time(ring):
  x = np.random.default_rng(8).standard_normal((N, N, 999), np.float32)
  outs = [spmd.run(lambda x: lax.psum_scatter(x, 'i'), ring, x) for _ in range(5)]
  assert len({o.tobytes() for o in outs}) == 1
  np.testing.assert_allclose(outs[0], x.sum(0), rtol=1e-4, atol=1e-5)
