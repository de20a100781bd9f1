"""What JAX lowers for TPUs alone, beside linear algebra."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

SIZES = np.array([3, 0, 5, 2], np.int32)  # rows of each group; two of the 12 rows are in none


def dense_ragged_dot(left, right, sizes):
  out = np.zeros((left.shape[0], right.shape[2]), np.result_type(left, right))
  end = np.cumsum(sizes)
  for group, (begin, limit) in enumerate(zip(end - sizes, end)):
    out[begin:limit] = left[begin:limit] @ right[group]
  return out


def integers(dtype, *shape):
  """Small whole numbers: every type has their products' sums exactly."""
  return np.random.default_rng(7).integers(0 if dtype == 'uint8' else -3, 4, shape).astype(dtype)


# Complex numbers end the client's process: JAX cannot lower them (0.12.0.1).
@pytest.mark.parametrize('dtype', ['float32', 'float64', 'bfloat16', 'float16', 'float8_e4m3fn', 'int8', 'uint8', 'int32', 'int64'])
def test_ragged_dot(devices, dtype):
  with jax.enable_x64(True):
    left, right = integers(dtype, 12, 4), integers(dtype, 4, 4, 5)
    # A float8 is too short for the sums.
    wanted = np.float32 if dtype == 'float8_e4m3fn' else dtype
    f = jax.jit(lambda l, r, s: lax.ragged_dot(l, r, s, preferred_element_type=wanted))
    got = f(*jax.device_put((left, right, SIZES), devices[9]))
    assert got.dtype == wanted
    expected = dense_ragged_dot(left.astype(float), right.astype(float), SIZES)
    if dtype == 'uint8':
      expected %= 256
    elif dtype == 'int8':
      expected = (expected + 128) % 256 - 128
    np.testing.assert_array_equal(np.asarray(got).astype(float), expected)


def test_ragged_dot_widens():
  got = lax.ragged_dot(integers('int8', 12, 4), integers('int8', 4, 4, 5), SIZES, preferred_element_type=np.int32)
  assert got.dtype == np.int32
  np.testing.assert_array_equal(got, dense_ragged_dot(integers('int32', 12, 4), integers('int32', 4, 4, 5), SIZES))


def test_gradients_of_ragged_dot():
  left, right = integers('float32', 12, 4), integers('float32', 4, 4, 5)
  value = jax.jit(jax.grad(lambda l, r: (lax.ragged_dot(l, r, SIZES)**2).sum(), (0, 1)))
  of_left, of_right = value(left, right)
  product = dense_ragged_dot(left, right, SIZES)
  np.testing.assert_array_equal(of_left, 2 * dense_ragged_dot(product, right.swapaxes(1, 2), SIZES))
  ends = np.cumsum(SIZES)
  np.testing.assert_array_equal(of_right, [2 * left[e - s:e].T @ product[e - s:e] for s, e in zip(SIZES, ends)])


def general(left, right, sizes, contracting, batch, ragged, groups):
  numbers = lax.RaggedDotDimensionNumbers(dot_dimension_numbers=(contracting, batch), lhs_ragged_dimensions=[ragged],
                                          rhs_group_dimensions=groups)
  return jax.jit(lambda l, r, s: lax.ragged_dot_general(l, r, s, numbers))(left, right, sizes)


def test_ragged_rows_in_batches():
  left, right = integers('float32', 2, 6, 4), integers('float32', 4, 3, 2, 5)  # [b,m,k] x [k,g,b,n]
  sizes = np.array([[1, 2, 3], [0, 6, 0]], np.int32)
  got = general(left, right, sizes, ([2], [0]), ([0], [2]), 1, [1])
  for b in range(2):
    np.testing.assert_array_equal(got[b], dense_ragged_dot(left[b], right[:, :, b].swapaxes(0, 1), sizes[b]))


def test_ragged_contraction_in_batches():
  left, right = integers('float32', 2, 6, 4), integers('float32', 6, 2, 5)  # [b,k,m] x [k,b,n]
  sizes = np.array([[1, 2, 3], [0, 6, 0]], np.int32)
  got = general(left, right, sizes, ([1], [0]), ([0], [1]), 1, [])
  for b in range(2):
    ends = np.cumsum(sizes[b])
    for g in range(3):
      part = slice(ends[g] - sizes[b, g], ends[g])
      np.testing.assert_array_equal(got[g, b], left[b, part].T @ right[part, b])


def test_ragged_batches():
  left, right = integers('float32', 4, 3, 2), integers('float32', 4, 2, 5)
  got = general(left, right, np.array([1, 2], np.int32), ([2], [1]), ([0], [0]), 0, [])
  np.testing.assert_array_equal(got[:3], (left @ right)[:3])


def test_vmapped_ragged_dot():
  left, right = integers('float32', 3, 12, 4), integers('float32', 3, 4, 4, 5)
  sizes = np.stack([SIZES, SIZES[::-1], np.array([12, 0, 0, 0], np.int32)])
  got = jax.jit(jax.vmap(lax.ragged_dot))(left, right, sizes)
  np.testing.assert_array_equal(got, [dense_ragged_dot(*z) for z in zip(left, right, sizes)])


@pytest.mark.parametrize('specs', [(P('x'), P(None, None, 'y'), P()), (P(None, 'x'), P(None, 'x', 'y'), P()),
                                   (P(('x', 'y')), P('x'), P('y'))])
def test_ragged_dot_over_devices(devices, specs):
  mesh = spmd.mesh_of(devices, (4, 4), ('x', 'y'))
  left, right = integers('float32', 16, 8), integers('float32', 4, 8, 8)
  put = [jax.device_put(v, NamedSharding(mesh, s)) for v, s in zip((left, right, SIZES), specs)]
  np.testing.assert_array_equal(jax.jit(lax.ragged_dot)(*put), dense_ragged_dot(left, right, SIZES))


def test_uninitialized_memory(devices):
  for dtype in (np.float32, np.int8, jnp.bfloat16, jnp.int4, np.complex64, bool):
    filled = jax.jit(lambda: lax.empty((3, 4), dtype).at[:].set(jnp.ones((), dtype)))()
    assert filled.dtype == dtype
    np.testing.assert_array_equal(filled.astype(np.float32), np.ones((3, 4)))


@pytest.mark.parametrize('dtype', [np.float32, jnp.bfloat16])
def test_approximate_top_k(devices, dtype):
  mesh = spmd.mesh_of(devices, (4, 4), ('x', 'y'))
  # All values of a row differ, also as bfloat16: they are its 2048 from 2^-8 to 2^8, and as many below zero.
  values = np.arange(2048, dtype=np.uint16) + 0x3b80
  values = np.concatenate([values, values + 0x8000]).view(jnp.bfloat16)
  values = np.stack([np.random.default_rng(row).permutation(values) for row in range(8)]).astype(dtype)
  for f, sign in ((lax.approx_max_k, -1), (lax.approx_min_k, 1)):
    got, where = jax.jit(lambda v: f(v, 5))(jax.device_put(values, NamedSharding(mesh, P('x', 'y'))))
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.take_along_axis(values, np.asarray(where), -1), got)
    np.testing.assert_array_equal(got.astype(np.float32), sign * np.sort(sign * values.astype(np.float32))[:, :5])


@pytest.mark.parametrize('dtype', ['int2', 'uint2', 'int4', 'float4_e2m1fn'])
def test_exchange_of_elements_below_a_byte(devices, dtype):
  mesh = spmd.mesh_of(devices, (16,), ('x',))
  x = (np.arange(16 * 16 * 2) % 2).reshape(16, 16, 2).astype(jnp.dtype(dtype))
  got = spmd.run(lambda x: lax.all_to_all(x, 'x', 0, 0), mesh, x)
  np.testing.assert_array_equal(got.astype(np.float32), x.swapaxes(0, 1).astype(np.float32))


# --- Memory of the host -------------------------------------------------------------------------------------------------

HOST = 'pinned_host'


@pytest.fixture
def mesh(devices):
  return spmd.mesh_of(devices, (4, 4), ('x', 'y'))


def test_through_host_memory(mesh):
  device, host = (NamedSharding(mesh, P('x', 'y'), memory_kind=kind) for kind in ('device', HOST))
  x = np.arange(64, dtype=np.float32).reshape(8, 8)

  @jax.jit
  def f(x):
    kept = jax.device_put(jnp.sin(x), host)
    return jax.device_put(kept, device) + jax.device_put(jax.device_put(x + 1, jax.memory.Space.Host),
                                                         jax.memory.Space.Device)

  np.testing.assert_allclose(f(jax.device_put(x, device)), np.sin(x) + x + 1, rtol=1e-6)


def test_arguments_and_results_in_host_memory(mesh):
  device, host = (NamedSharding(mesh, P('x', 'y'), memory_kind=kind) for kind in ('device', HOST))
  x = np.arange(64, dtype=np.float32).reshape(8, 8)

  def f(x, y):
    on_device = jax.device_put(x, device)
    return on_device + y, x, jax.device_put(on_device * 2, host)

  added, same, doubled = jax.jit(f, in_shardings=(host, device), out_shardings=(device, host, host), donate_argnums=0)(
      jax.device_put(x, host), jax.device_put(x, device))
  assert [a.sharding.memory_kind for a in (added, same, doubled)] == ['device', HOST, HOST]
  for got, wanted in ((added, 2 * x), (same, x), (doubled, 2 * x)):
    np.testing.assert_array_equal(got, wanted)


def test_scan_over_weights_in_host_memory(mesh):
  device = NamedSharding(mesh, P('x', 'y'), memory_kind='device')
  weights = jax.device_put(np.arange(5 * 64, dtype=np.float32).reshape(5, 8, 8),
                           NamedSharding(mesh, P(None, 'x', 'y'), memory_kind=HOST))

  @jax.jit
  def f(weights):
    return lax.scan(lambda c, w: (c + jax.device_put(w, device), None), jnp.zeros((8, 8)), weights)[0]

  np.testing.assert_array_equal(f(weights), np.asarray(weights).sum(0))


def test_rematerialization_that_offloads(mesh):
  policy = jax.checkpoint_policies.save_and_offload_only_these_names(
      names_which_can_be_saved=[], names_which_can_be_offloaded=['kept'], offload_src='device', offload_dst=HOST)

  @functools.partial(jax.checkpoint, policy=policy)
  def f(x):
    return lax.scan(lambda c, _: (checkpoint_name(jnp.sin(c), 'kept'), None), x, None, length=3)[0].sum()

  x = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
  gradient = jax.jit(jax.grad(f))(jax.device_put(x, NamedSharding(mesh, P('x', 'y'))))
  y, z = np.sin(x), np.sin(np.sin(x))
  np.testing.assert_allclose(gradient, np.cos(z) * np.cos(y) * np.cos(x), rtol=1e-5)


# --- What only a TPU can do ---------------------------------------------------------------------------------------------

def add_one_kernel(x, out):
  out[...] = x[...] + 1


def add_one(x, **arguments):
  return pl.pallas_call(add_one_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), **arguments)(x)


def test_interpreted_kernel():
  x = jnp.zeros((8, 128), np.float32)
  np.testing.assert_array_equal(jax.jit(lambda x: add_one(x, interpret=True))(x), np.ones((8, 128)))


@pytest.mark.cluster
def test_kernel_for_tpus_is_refused_by_name():
  with pytest.raises(Exception, match=r'(?s)kernel add_one_of_mine .*interpret=True.*real TPU'):
    jax.jit(lambda x: add_one(x, name='add_one_of_mine'))(jnp.zeros((8, 128), np.float32))


@pytest.mark.cluster
def test_unknown_custom_call_is_refused_by_name():
  call = jax.ffi.ffi_call('nobodys_target', jax.ShapeDtypeStruct((3,), np.float32))
  with pytest.raises(Exception, match='nobodys_target'):
    jax.jit(call)(jnp.ones(3, np.float32))
  np.testing.assert_array_equal(jnp.ones(3) + 1, np.full(3, 2))  # nothing else is hurt
