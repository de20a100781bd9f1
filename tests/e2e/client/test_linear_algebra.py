"""LU decompositions and what stands on them: JAX lowers them for TPUs to a call that XLA's CPU compiler does not know."""
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.complex64): 1e-4, np.dtype(np.float64): 1e-10,
             np.dtype(np.complex128): 1e-10}


def matrices(dtype, *shape):
  """Well-conditioned, and such that pivoting exchanges rows."""
  rng = np.random.default_rng(4)
  x = rng.standard_normal(shape)
  if np.issubdtype(dtype, np.complexfloating):
    x = x + 1j * rng.standard_normal(shape)
  return (x + 4 * np.eye(*shape[-2:])[::-1]).astype(dtype)


def close(x, y):
  tolerance = TOLERANCE[np.result_type(x.dtype, np.float32)]
  np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def restored(lu, permutation):
  """The matrices whose decomposition this is."""
  m, n = lu.shape[-2:]
  k = min(m, n)
  product = (np.tril(lu[..., :k], -1) + np.eye(m, k, dtype=lu.dtype)) @ np.triu(lu[..., :k, :])
  return np.take_along_axis(product, np.argsort(permutation)[..., None], -2)


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


@pytest.mark.parametrize('dtype', DTYPES)
def test_what_stands_on_lu(devices, dtype):
  a, b = matrices(dtype, 3, 5, 5), matrices(dtype, 3, 5, 2)

  @jax.jit
  def f(a, b):
    factors = jax.vmap(jsl.lu_factor)(a)
    return (jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(a), jnp.linalg.slogdet(a),
            jax.vmap(jsl.lu_solve)(factors, b), jsl.expm(a / 4),
            jax.grad(lambda a: jnp.log(abs(jnp.linalg.det(a))).sum())(a), jax.jvp(lambda a: lax.linalg.lu(a)[0], (a,), (a,))[1])

  solved, inverse, det, (sign, logdet), lu_solved, exponential, gradient, tangent = jax.tree.map(
      np.asarray, f(*jax.device_put((a, b), devices[9])))
  assert solved.dtype == inverse.dtype == det.dtype == dtype
  close(solved, np.linalg.solve(a, b))
  close(lu_solved, solved)
  close(inverse @ a, np.broadcast_to(np.eye(5), a.shape))
  close(det, np.linalg.det(a))
  close(sign * np.exp(logdet), det)
  close(exponential @ np.asarray(jax.jit(jsl.expm)(-a / 4)), np.broadcast_to(np.eye(5), a.shape))
  close(gradient, np.swapaxes(np.linalg.inv(a), 1, 2))
  close(tangent, np.triu(lax.linalg.lu(a)[0]))  # along a itself only U grows


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('shape', [(1, 1), (4, 7), (7, 4), (2, 3, 6, 6), (140, 140)])
def test_decomposition(dtype, shape):
  a = matrices(dtype, *shape)
  lu, pivots, permutation = jax.tree.map(np.asarray, lax.linalg.lu(a))
  assert lu.dtype == dtype and pivots.dtype == permutation.dtype == np.int32
  close(restored(lu, permutation), a)
  np.testing.assert_array_equal(permutation, lax.linalg.lu_pivots_to_permutation(pivots, shape[-2]))


@pytest.mark.parametrize('shape', [(0, 0), (3, 0), (0, 3), (0, 3, 3), (2, 0, 4)])
def test_empty(shape):
  lu, pivots, permutation = lax.linalg.lu(jnp.zeros(shape, np.float32))
  assert lu.shape == shape and pivots.shape == (*shape[:-2], min(shape[-2:]))
  np.testing.assert_array_equal(permutation, np.broadcast_to(np.arange(shape[-2]), (*shape[:-2], shape[-2])))


def test_singular():
  ones = jnp.ones((3, 3))
  np.testing.assert_array_equal(lax.linalg.lu(ones)[0], [[1, 1, 1], [1, 0, 0], [1, 0, 0]])
  assert jnp.linalg.det(ones) == 0
  assert tuple(jnp.linalg.slogdet(ones)) == (0, -np.inf)
  assert not np.isfinite(jnp.linalg.inv(ones)).any()
  assert np.isnan(jnp.linalg.inv(jnp.full((3, 3), np.nan))).all()


@spmd.not_on_cpu('JAX does not lower it there')
@pytest.mark.parametrize('dtype', [jnp.bfloat16, np.float16])
def test_narrow_floats(dtype):
  a = matrices(np.float32, 4, 4).astype(dtype)
  if jax.__version_info__ >= (0, 12):
    with pytest.raises(TypeError, match='does not accept dtype'):  # JAX's own decision
      lax.linalg.lu(a)
    return
  lu, _, permutation = jax.tree.map(np.asarray, lax.linalg.lu(a))
  assert lu.dtype == dtype
  np.testing.assert_allclose(restored(lu.astype(np.float32), permutation), a.astype(np.float32), rtol=.1, atol=.1)


def test_sharded(devices):
  mesh = spmd.mesh_of(devices, (4, 4), ('x', 'y'))
  a, b = matrices(np.float32, 16, 8, 8), matrices(np.float32, 16, 8, 4)
  for spec_a, spec_b in [(P(('x', 'y')), P(('x', 'y'))), (P('x', 'y'), P(None, 'x', 'y')), (P(None, 'y', 'x'), P())]:
    put_a, put_b = (jax.device_put(v, NamedSharding(mesh, s)) for v, s in ((a, spec_a), (b, spec_b)))
    close(np.asarray(jax.jit(jnp.linalg.solve)(put_a, put_b)), np.linalg.solve(a, b))
    close(np.asarray(jax.jit(jax.grad(lambda a: jnp.linalg.slogdet(a)[1].sum()))(put_a)),
          np.swapaxes(np.linalg.inv(a), 1, 2))


def test_on_every_device_of_a_shard_map(devices):
  mesh = spmd.mesh_of(devices, (16,), ('x',))
  a = matrices(np.float64, 16, 5, 5)
  close(spmd.run(lambda a: jnp.linalg.inv(a) + lax.psum(jnp.linalg.det(a), 'x'), mesh, a),
        np.linalg.inv(a) + np.linalg.det(a).sum())


def test_in_control_flow():
  a = matrices(np.float64, 4, 3, 3)

  @jax.jit
  def f(a):
    scanned = lax.scan(lambda c, x: (jnp.linalg.solve(x, c), jnp.linalg.det(x)), jnp.eye(3), a)
    looped = lax.fori_loop(0, 5, lambda i, c: jnp.linalg.inv(c), a)
    chosen = lax.cond(a[0, 0, 0] > 1e9, lambda x: x, lambda x: jnp.linalg.inv(x), a)
    return scanned, looped, chosen

  (last, dets), looped, chosen = f(a)
  close(np.asarray(last), np.linalg.inv(a[0] @ a[1] @ a[2] @ a[3]))
  close(np.asarray(dets), np.linalg.det(a))
  close(np.asarray(looped), np.linalg.inv(a))
  close(np.asarray(chosen), np.linalg.inv(a))
