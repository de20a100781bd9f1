"""Buffers beyond 2 GiB, in both directions, with bounded memory in the proxy."""
import re

import pytest

import client_process
from cluster import wait_until


def available_memory():
  return int(re.search(r'MemAvailable:\s+(\d+) kB', open('/proc/meminfo', encoding='ascii').read())[1]) << 10


@pytest.mark.skipif(available_memory() < 14 << 30, reason='needs 14 GiB of free memory')
def test_more_than_two_gibibytes(cluster):
  proxy = cluster.proxy()
  before = proxy.memory()
  proxy.reset_peak()
  out = client_process.run(cluster, '''
    n = (2304 << 20) // 4
    x = np.arange(n, dtype=np.uint32)
    def timed(what, f):
      start = time.monotonic()
      out = f()
      say(what, round(time.monotonic() - start, 2), 's')
      return out
    y = timed('put to one device', lambda: jax.block_until_ready(jax.device_put(x, jax.devices()[5])))
    assert int(jax.jit(lambda y: y[-1])(y)) == n - 1
    assert timed('get from one device', lambda: np.array_equal(np.asarray(y), x))
    z = timed('to the other slice', lambda: jax.block_until_ready(jax.device_put(y, jax.devices()[-1])))
    y.delete()
    assert int(jax.jit(lambda z: z[n // 2])(z)) == n // 2
    z.delete()
    mesh = spmd.mesh_of(jax.devices(), (16,), ('i',))
    w = timed('put sharded', lambda: jax.block_until_ready(spmd.put(x, mesh)))
    assert timed('get sharded', lambda: np.array_equal(np.asarray(w), x))
    ''', seconds=150)
  print(out)
  peak = proxy.memory('VmHWM')
  assert peak < before + (768 << 20), f'the proxy held {(peak - before) >> 20} MiB of a 2304 MiB transfer'
  wait_until(lambda: cluster.buffers() == 0, 15, 'the arrays are freed')


def test_many_puts_at_once_are_held_back(cluster):
  """1 GiB in 256 arrays, put without waiting: the proxy does not hoard them."""
  proxy = cluster.proxy()
  before = proxy.memory()
  proxy.reset_peak()
  client_process.run(cluster, '''
    x = np.arange(1 << 20, dtype=np.float32)
    ys = [jax.device_put(x + k, jax.devices()[k % 16]) for k in range(256)]
    for k, y in enumerate(ys):
      np.testing.assert_array_equal(y, x + k)
    ''', seconds=90)
  peak = proxy.memory('VmHWM')
  assert peak < before + (640 << 20), f'the proxy held {(peak - before) >> 20} MiB'
