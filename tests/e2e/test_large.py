"""Buffers beyond 2 GiB, in both directions, with bounded memory in the proxy."""
import re

import pytest

import client_process
from cluster import wait_until


def available_memory():
  return int(re.search(r'MemAvailable:\s+(\d+) kB', open('/proc/meminfo', encoding='ascii').read())[1]) << 10


@pytest.mark.skipif(available_memory() < 14 << 30, reason='needs 14 GiB of free memory')
def test_more_than_two_gibibytes(cluster):
  """Written so that the client's own memory, up to four times an array's size in JAX, stays as low as can be."""
  with cluster.proxy().watched_memory() as peak:
    before = peak[0]
    out = client_process.run(cluster, '''
        n = (2080 << 20) // 4
        def timed(what, f):
          start = time.monotonic()
          out = f()
          say(what, round(time.monotonic() - start, 2), 's')
          return out
        def is_range(x):
          return all(np.array_equal(x[k:k + (1 << 20)], np.arange(k, min(n, k + (1 << 20)), dtype=np.uint32))
                     for k in range(0, n, 1 << 20))
        y = timed('put to one device', lambda: jax.block_until_ready(jax.device_put(np.arange(n, dtype=np.uint32), jax.devices()[5])))
        assert int(jax.jit(lambda y: y[-1])(y)) == n - 1
        z = timed('to the other slice', lambda: jax.block_until_ready(jax.device_put(y, jax.devices()[-1])))
        y.delete()
        assert is_range(timed('get from one device', lambda: np.asarray(z)))
        del y, z
        mesh = spmd.mesh_of(jax.devices(), (16,), ('i',))
        w = timed('put sharded', lambda: jax.block_until_ready(spmd.put(np.arange(n, dtype=np.uint32), mesh)))
        assert is_range(timed('get sharded', lambda: np.asarray(w)))
        ''', seconds=200)
  print(out)
  assert peak[0] < before + (512 << 20), f'the proxy held {(peak[0] - before) >> 20} MiB of a 2080 MiB transfer'
  wait_until(lambda: cluster.buffers() == 0, 15, 'the arrays are freed')


def test_many_puts_at_once_are_held_back(cluster):
  """1 GiB in 256 arrays, put without waiting: the proxy does not hoard them."""
  with cluster.proxy().watched_memory() as peak:
    before = peak[0]
    client_process.run(cluster, '''
        x = np.arange(1 << 20, dtype=np.float32)
        ys = [jax.device_put(x + k, jax.devices()[k % 16]) for k in range(256)]
        for k, y in enumerate(ys):
          np.testing.assert_array_equal(y, x + k)
        ''', seconds=90)
  assert peak[0] < before + (512 << 20), f'the proxy held {(peak[0] - before) >> 20} MiB'
