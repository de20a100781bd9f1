"""jit with shardings: the collectives that XLA's partitioner puts in by itself."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd


@pytest.fixture(scope='module', params=[(4, 4), (2, 8), (8, 2)], ids=str)
def mesh(request, devices):
  return spmd.mesh_of(devices, request.param, ('x', 'y'))


@pytest.fixture(scope='module')
def square(devices):
  return spmd.mesh_of(devices, (4, 4), ('x', 'y'))


@pytest.fixture(scope='module')
def cube(devices):
  return spmd.mesh_of(devices, (2, 2, 4), ('data', 'model', 'expert'))


def sharded(x, mesh, *spec):
  return jax.device_put(x, NamedSharding(mesh, P(*spec)))


CONTRACTIONS = {
    'all-gather': (('x', None), (None, 'y'), ('x', 'y')),
    'all-reduce': ((None, 'x'), ('x', None), (None, None)),
    'reduce-scatter': ((None, 'x'), ('x', None), ('x', None)),
    'two-axes': (('x', 'y'), ('y', 'x'), ('y', None)),
    'whole-grid': ((('x', 'y'), None), (None, ('x', 'y')), (None, ('y', 'x'))),
    'contract-grid': ((None, ('x', 'y')), (('x', 'y'), None), (None, None)),
    'from-replicated': ((None, None), (None, None), ('x', 'y')),
}


@pytest.mark.parametrize('left,right,result', CONTRACTIONS.values(), ids=CONTRACTIONS.keys())
def test_matmul(mesh, left, right, result):
  a, b = spmd.integers(1, (32, 64)), spmd.integers(2, (64, 48))
  f = jax.jit(jnp.dot, out_shardings=NamedSharding(mesh, P(*result)))
  out = f(sharded(a, mesh, *left), sharded(b, mesh, *right))
  assert out.sharding.is_equivalent_to(NamedSharding(mesh, P(*result)), 2)
  np.testing.assert_array_equal(out, a @ b)


SPECS = [(None, None), ('x', None), (None, 'x'), ('x', 'y'), ('y', 'x'), (('x', 'y'), None), (None, ('y', 'x')), ('y', None)]


@pytest.mark.parametrize('target', SPECS, ids=str)
@pytest.mark.parametrize('source', SPECS, ids=str)
def test_resharding_inside_jit(square, source, target):
  x = spmd.integers(3, (32, 16))
  to = NamedSharding(square, P(*target))
  out = jax.jit(lambda x: jax.lax.with_sharding_constraint(x + 1, to))(sharded(x, square, *source))
  assert out.sharding.is_equivalent_to(to, 2)
  np.testing.assert_array_equal(out, x + 1)


@pytest.mark.parametrize('spec', [('x', None), (None, 'x'), ('x', 'y'), (None, ('x', 'y'))], ids=str)
def test_layer_norm(mesh, spec):
  x = spmd.integers(4, (16, 64))

  def norm(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean)**2).mean(-1, keepdims=True) + 1e-5)

  y = np.asarray(jax.jit(norm)(sharded(x, mesh, *spec)))
  np.testing.assert_allclose(y, norm_reference(x), rtol=2e-5, atol=2e-6)


def norm_reference(x):
  wide = x.astype(np.float64)
  mean = wide.mean(-1, keepdims=True)
  return (wide - mean) / np.sqrt(((wide - mean)**2).mean(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize('spec', [('x', None), (None, 'x'), ('x', 'y')], ids=str)
@pytest.mark.parametrize('name', ['sum', 'max', 'min', 'argmax', 'cumsum', 'sort', 'roll', 'flip', 'transpose', 'reshape', 'pad',
                                  'slice', 'gather', 'scatter', 'logsumexp'])
def test_operation(square, name, spec):
  operations = {
      'sum': lambda n, x: x.sum(1),
      'max': lambda n, x: x.max(0),
      'min': lambda n, x: x.min(),
      'argmax': lambda n, x: n.argmax(x, 1),
      'cumsum': lambda n, x: n.cumsum(x, 1),
      'sort': lambda n, x: n.sort(x, 1),
      'roll': lambda n, x: n.roll(x, 3, 1),
      'flip': lambda n, x: x[::-1, ::-1],
      'transpose': lambda n, x: x.T,
      'reshape': lambda n, x: x.reshape(32, 32),
      'pad': lambda n, x: n.pad(x, ((1, 2), (3, 0))),
      'slice': lambda n, x: x[3:-2, 1::3],
      'gather': lambda n, x: x[n.array([5, 0, 15, 5])],
      'scatter': lambda n, x: x.at[n.array([2, 7])].add(1) if n is jnp else x + np.isin(np.arange(16), [2, 7])[:, None],
      'logsumexp': lambda n, x: n.log(n.exp(x - x.max()).sum()) + x.max(),
  }
  x = spmd.integers(5, (16, 64))
  out = jax.jit(functools.partial(operations[name], jnp))(sharded(x, square, *spec))
  np.testing.assert_allclose(out, operations[name](np, x), rtol=1e-5)


def test_convolution_over_a_sharded_image(mesh):
  """Halo exchange."""
  x, k = spmd.integers(6, (4, 1, 32, 16)), spmd.integers(7, (2, 1, 3, 3))
  f = jax.jit(lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), 'SAME'))
  expected = np.zeros((4, 2, 32, 16), np.float32)
  padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
  for i in range(3):
    for j in range(3):
      expected += np.einsum('bchw,oc->bohw', padded[:, :, i:i + 32, j:j + 16], k[:, :, i, j])
  np.testing.assert_array_equal(f(sharded(x, mesh, None, None, 'x', 'y'), sharded(k, mesh)), expected)


def test_uneven_intermediate(mesh):
  """17 rows cannot be cut into equal parts: the partitioner pads and masks."""
  x = spmd.integers(8, (16, 32))
  to = NamedSharding(mesh, P('x', None))

  def f(x):
    y = jax.lax.with_sharding_constraint(jnp.concatenate([x, x[:1]]), to)
    return y.sum(0), y.max(0)

  total, largest = jax.jit(f)(sharded(x, mesh, 'x', 'y'))
  np.testing.assert_array_equal(total, x.sum(0) + x[0])
  np.testing.assert_array_equal(largest, x.max(0))


def test_gradient_of_a_sharded_mlp(cube):
  rng = np.random.default_rng(9)
  w1, w2 = (rng.standard_normal(s, np.float32) * .1 for s in ((32, 64), (64, 16)))
  x, y = rng.standard_normal((32, 32), np.float32), rng.standard_normal((32, 16), np.float32)

  def loss(params, x, y):
    h = jax.nn.gelu(x @ params[0])
    return ((h @ params[1] - y)**2).mean()

  expected = jax.jit(jax.value_and_grad(loss))((w1, w2), x, y)
  placed = (sharded(w1, cube, None, ('model', 'expert')), sharded(w2, cube, ('model', 'expert'), None))
  got = jax.jit(jax.value_and_grad(loss))(placed, sharded(x, cube, 'data', None), sharded(y, cube, 'data', None))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), got, expected)
  assert got[1][0].sharding.is_equivalent_to(placed[0].sharding, 2)


@pytest.mark.parametrize('shardy', [True, False], ids=['shardy', 'gspmd'])
def test_both_partitioners(mesh, shardy):
  a, b = spmd.integers(1, (16, 32)), spmd.integers(2, (32, 16))
  before = jax.config.jax_use_shardy_partitioner
  try:
    jax.config.update('jax_use_shardy_partitioner', shardy)
    out = jax.jit(lambda a, b: (a @ b).sum(0))(sharded(a, mesh, 'x', 'y'), sharded(b, mesh, 'y', None))
  finally:
    jax.config.update('jax_use_shardy_partitioner', before)
  np.testing.assert_array_equal(out, (a @ b).sum(0))


def test_random_numbers_do_not_depend_on_the_sharding(mesh):
  draw = lambda key: jax.random.uniform(key, (32, 16))
  key = jax.random.key(5)
  spread = jax.jit(draw, out_shardings=NamedSharding(mesh, P('x', 'y')))(key)
  np.testing.assert_array_equal(spread, jax.jit(draw)(key))


def test_pjit_with_mixed_shardings(cube):
  f = jax.jit(lambda a, b, c: (a + b, (a * c).sum()),
              in_shardings=(NamedSharding(cube, P('data')), NamedSharding(cube, P(None, 'model')), NamedSharding(cube, P())),
              out_shardings=(NamedSharding(cube, P('expert', 'model')), NamedSharding(cube, P())))
  a, b = spmd.integers(1, (16, 8)), spmd.integers(2, (16, 8))
  added, total = f(a, b, np.float32(3))
  np.testing.assert_array_equal(added, a + b)
  assert float(total) == a.sum() * 3 and total.sharding.is_fully_replicated


def test_vmap_of_collective_and_nested_pmap_style(cube):
  """shard_map over some mesh axes, the partitioner over the others."""
  x = spmd.integers(1, (8, 16, 12))
  inner = jax.shard_map(lambda x: jax.lax.psum(x, 'data'), mesh=cube, in_specs=P('data'), out_specs=P(), axis_names={'data'})
  out = jax.jit(lambda x: inner(jax.lax.with_sharding_constraint(x, NamedSharding(cube, P('data', 'model', 'expert')))))(x)
  np.testing.assert_array_equal(out, x[:4] + x[4:])
