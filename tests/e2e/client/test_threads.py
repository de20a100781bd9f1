"""Several threads of one client."""
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from client import spmd


def test_threads_on_devices_of_their_own(devices):
  """Each thread compiles, runs, puts and gets on its own."""

  def work(k):
    x = jax.device_put(np.full((100,), k, np.float32), devices[k])
    f = jax.jit(lambda x: x * 2 + k)
    for _ in range(20):
      x = f(x)
    return np.asarray(x)

  with ThreadPoolExecutor(8) as pool:
    for k, out in enumerate(pool.map(work, range(16))):
      expected = np.full((100,), k, np.float32)
      for _ in range(20):
        expected = expected * 2 + k
      np.testing.assert_array_equal(out, expected)


@spmd.not_on_cpu('its collectives deadlock when several threads launch them')
def test_threads_that_all_use_collectives_over_all_devices(devices):
  """Launches of different threads get one order, the same on every worker, or their collectives would wait for each other."""
  mesh = spmd.mesh_of(devices, (16,), ('i',))
  f = jax.jit(jax.shard_map(lambda x: lax.pmax(x, 'i') + lax.axis_index('i'), mesh=mesh, in_specs=P('i'), out_specs=P('i')))

  def work(k):
    x = spmd.put(np.full((16,), k, np.int32), mesh)
    for _ in range(40):
      x = f(x)
    return np.asarray(x)

  with ThreadPoolExecutor(6) as pool:
    for k, out in enumerate(pool.map(work, range(6))):
      np.testing.assert_array_equal(out, k + 39 * 15 + np.arange(16))


def test_threads_that_share_arrays(devices):
  x = jax.device_put(np.arange(1000, dtype=np.float32), devices[5])

  def work(k):
    return float(jnp.sum(jax.device_put(x, devices[k]) * k))

  with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(work, range(16))) == [499500.0 * k for k in range(16)]
