"""Every element type: through the wire, through programs, through collectives."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from client import spmd

N = 16
INTEGERS = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64']
FLOATS = ['float16', 'bfloat16', 'float32', 'float64']
COMPLEX = ['complex64', 'complex128']
FP8 = ['float8_e4m3fn', 'float8_e5m2', 'float8_e4m3b11fnuz', 'float8_e4m3fnuz', 'float8_e5m2fnuz', 'float8_e4m3', 'float8_e3m4',
       'float8_e8m0fnu']
NARROW = ['int4', 'uint4']
ALL = ['bool'] + INTEGERS + FLOATS + COMPLEX + FP8 + NARROW
NARROWEST = ['int2', 'uint2', 'float4_e2m1fn']  # XLA's CPU compiler aborts on collectives of these


def dtype_of(name):
  return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


@pytest.fixture(autouse=True)
def wide_types():
  with jax.enable_x64(True):
    yield


@pytest.fixture(scope='module')
def ring(devices):
  return spmd.mesh_of(devices, (N,), ('i',))


def values(name, shape, seed=1):
  """Values that the type can hold, all of them for the narrow ones."""
  dtype = dtype_of(name)
  rng = np.random.default_rng(seed)
  if name == 'bool':
    return rng.integers(0, 2, shape).astype(bool)
  if name in INTEGERS:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
  if name in COMPLEX:
    return (rng.integers(-9, 9, shape) + 1j * rng.integers(-9, 9, shape)).astype(dtype)
  if name == 'float8_e8m0fnu':
    return (2.0 ** rng.integers(-3, 4, shape)).astype(dtype)
  low, high = {'int4': (-8, 8), 'uint4': (0, 16), 'int2': (-2, 2), 'uint2': (0, 4)}.get(name, (-3, 4))
  return rng.integers(low, high, shape).astype(dtype)


def assert_same(got, expected):
  """Equal type, shape and values, bit by bit, also for types that numpy cannot compare."""
  assert got.dtype == expected.dtype and got.shape == expected.shape
  assert got.tobytes() == np.ascontiguousarray(expected).tobytes(), (got, expected)


@pytest.mark.parametrize('name', ALL + NARROWEST)
def test_there_and_back(devices, name):
  x = values(name, (6, 5))
  y = jax.device_put(x, devices[9])
  assert y.dtype == x.dtype
  assert_same(np.asarray(y), x)


@pytest.mark.parametrize('name', ALL)
def test_sharded_there_and_back(ring, name):
  x = values(name, (N, 3))
  assert_same(np.asarray(spmd.put(x, ring)), x)


@pytest.mark.parametrize('name', ALL)
def test_between_slices(devices, name):
  x = values(name, (7, 3))
  assert_same(np.asarray(jax.device_put(jax.device_put(x, devices[0]), devices[12])), x)


@pytest.mark.parametrize('name', ALL + NARROWEST)
def test_in_a_program(devices, name):
  x = jax.device_put(values(name, (6, 5)), devices[3])
  assert_same(np.asarray(jax.jit(lambda x: x[::-1].T)(x)), np.asarray(x)[::-1].T)


@pytest.mark.parametrize('name', ALL)
def test_moved_by_collectives(ring, name):
  x = values(name, (N, N, 3))

  def f(x):
    shift = [(i, (i + 1) % N) for i in range(N)]
    return lax.all_gather(x[0], 'i'), lax.all_to_all(x, 'i', 0, 0), lax.ppermute(x, 'i', shift)

  gathered, exchanged, shifted = spmd.run(f, ring, x)
  assert_same(gathered, np.broadcast_to(x[:, 0], gathered.shape))
  assert_same(exchanged, np.swapaxes(x, 0, 1))
  assert_same(shifted, np.roll(x, 1, axis=0))


@pytest.mark.parametrize('name', INTEGERS + FLOATS + COMPLEX)
def test_psum(ring, name):
  """Integer sums wrap around; sums of floats are of whole numbers, so they are exact."""
  x = values(name, (N, N, 5))
  summed, scattered = spmd.run(lambda x: (lax.psum(x, 'i'), lax.psum_scatter(x, 'i')), ring, x)
  expected = x.sum(0, dtype=x.dtype)
  assert_same(summed, np.broadcast_to(expected, x.shape))
  assert_same(scattered, expected)


@pytest.mark.parametrize('name', INTEGERS + FLOATS)
def test_pmax_and_pmin(ring, name):
  x = values(name, (N, 9))
  largest, smallest = spmd.run(lambda x: (lax.pmax(x, 'i'), lax.pmin(x, 'i')), ring, x)
  assert_same(largest, np.broadcast_to(x.max(0), x.shape))
  assert_same(smallest, np.broadcast_to(x.min(0), x.shape))


@pytest.mark.parametrize('name', FP8[:7])
def test_psum_of_fp8(devices, name):
  """Two devices: sums of whole numbers up to 6 are exact in every one of these types but e8m0, which has no zero."""
  mesh = spmd.mesh_of([devices[0], devices[15]], (2,), ('i',))
  x = values(name, (2, 33))
  summed, largest = spmd.run(lambda x: (lax.psum(x, 'i'), lax.pmax(x, 'i')), mesh, x)
  wide = x.astype(np.float32)
  np.testing.assert_array_equal(summed.astype(np.float32), np.broadcast_to(wide.sum(0).astype(x.dtype), x.shape).astype(np.float32))
  np.testing.assert_array_equal(largest.astype(np.float32), np.broadcast_to(wide.max(0), x.shape))


def test_psum_of_bool_counts(ring):
  x = values('bool', (N, 40))
  out = spmd.run(lambda x: lax.psum(x, 'i'), ring, x)
  np.testing.assert_array_equal(out, np.broadcast_to(x.sum(0, dtype=np.int32), x.shape))


def test_any_and_all_of_sharded_bool(ring):
  """The partitioner's `or` and `and` reductions."""
  x = values('bool', (N, 8)) & values('bool', (N, 8), seed=2)
  y = spmd.put(x, ring)
  np.testing.assert_array_equal(jax.jit(lambda y: y.any(0))(y), x.any(0))
  np.testing.assert_array_equal(jax.jit(lambda y: (~y).all(0))(y), (~x).all(0))


def test_product_of_sharded(ring):
  x = spmd.integers(4, (N, 8), 1, 3)
  np.testing.assert_array_equal(jax.jit(lambda y: y.prod(0))(spmd.put(x, ring)), x.prod(0))


@spmd.not_on_cpu('it does not implement bitwise reductions of integers')
@pytest.mark.parametrize('operation,reference', [(jnp.bitwise_xor, np.bitwise_xor), (jnp.bitwise_or, np.bitwise_or),
                                                 (jnp.bitwise_and, np.bitwise_and)], ids=lambda f: getattr(f, '__name__', ''))
def test_bitwise_reduction_of_sharded(ring, operation, reference):
  x = values('uint32', (N, 8))
  zero = np.uint32(0xffffffff if operation is jnp.bitwise_and else 0)
  f = jax.jit(lambda y: lax.reduce(y, zero, lambda a, b: operation(a, b), (0,)))
  np.testing.assert_array_equal(f(spmd.put(x, ring)), reference.reduce(x, axis=0))


def test_float64_is_not_narrowed(ring):
  x = 1 + np.arange(N, dtype=np.float64)[:, None] * 2.0**-40
  out = spmd.run(lambda x: lax.psum(x, 'i'), ring, x)
  assert out.dtype == np.float64 and (out == x.sum()).all()


def test_keys(ring):
  """Extended types: arrays of random keys, sharded."""
  keys = jax.random.split(jax.random.key(3), N)
  sharded = jax.device_put(keys, jax.sharding.NamedSharding(ring, jax.sharding.PartitionSpec('i')))
  draw = jax.jit(jax.vmap(lambda k: jax.random.normal(k, (4,), jnp.float32)))
  np.testing.assert_allclose(draw(sharded), draw(keys), rtol=1e-6)


# Types that no program of today takes, but that arrays may have.
ODD = [n for n in ('int1', 'uint1') if hasattr(ml_dtypes, n)]
if jax.__version_info__ >= (0, 12):
  ODD += ['float6_e2m3fn', 'float6_e3m2fn']


@pytest.mark.cluster
@pytest.mark.parametrize('name', ODD)
def test_types_that_programs_lack(devices, ring, name):
  """They live on the devices' hosts, and move as all others do."""
  x = np.arange(N * 3).reshape(N, 3).astype(np.int8) % 2
  x = x.astype(dtype_of(name))
  y = jax.device_put(x, devices[9])
  sharded = jax.device_put(x, jax.sharding.NamedSharding(ring, jax.sharding.PartitionSpec('i')))
  for array in (y, jax.device_put(y, devices[1]), jax.device_put(y, devices[10]), sharded):
    np.testing.assert_array_equal(np.asarray(array).astype(np.float32), x.astype(np.float32))


def test_float0(devices):
  """The tangent type of integers: no bytes, but arguments and results of programs."""
  n, x = jax.device_put((np.int32(3), np.float32(2)), devices[4])
  dn, dx = jax.grad(lambda n, x: n * x, argnums=(0, 1), allow_int=True)(n, x)
  assert dn.dtype == jax.dtypes.float0 and float(dx) == 3
  same, y = jax.jit(lambda z, x: (z, x + 1))(np.zeros((3,), jax.dtypes.float0), x)
  assert same.dtype == jax.dtypes.float0 and same.shape == (3,) and float(y) == 3


def test_keys_everywhere(devices, ring):
  """Keys in host memory, on other devices, in any order."""
  keys = jax.random.split(jax.random.key(4), N)
  spread = jax.device_put(keys, jax.sharding.NamedSharding(ring, jax.sharding.PartitionSpec('i')))
  pinned = jax.device_put(spread, spread.sharding.with_memory_kind('pinned_host'))
  one = jax.device_put(keys, devices[13])
  for moved in (spread, pinned, one, jax.device_put(pinned, devices[2])):
    np.testing.assert_array_equal(jax.random.key_data(jax.device_put(moved, devices[0])), jax.random.key_data(keys))
