"""Scale of data, and whether anything grows: a million steps, 100,000 live arrays, 10,000 arguments, a program with large
constants, 10,000 executables, arrays beyond 2 GiB.

Each measurement is a client of a fresh cluster that does the same work in rounds. After each round it stops, and the memory of
every process is noted. Prints a Markdown table; exits with 1 if something has grown
between the first round, in which caches fill, and the last. `--scale=0.01` is a quick look.
"""
import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import setups

MIB = 1 << 20


# Inside the client ------------------------------------------------------------------------------------------------------


class Rounds:
  """Tells the parent that a round is over and waits until it has looked."""

  def __init__(self, count=5):
    self.count = count

  def __iter__(self):
    for k in range(self.count):
      start = time.monotonic()
      yield k
      import gc
      gc.collect()
      print(f'round {k} {time.monotonic() - start:.2f}', flush=True)
      sys.stdin.readline()


def steps(scale):
  """a million steps, nine of ten on one device, the others over all 16 with a collective"""
  import jax
  import numpy as np
  from jax import lax
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:16]), ('i',))
  spec = jax.sharding.PartitionSpec('i')
  one = jax.jit(lambda x: x + 1)
  ring = jax.jit(jax.shard_map(lambda x: x + lax.pmax(x, 'i') - x + 1, mesh=mesh, in_specs=spec, out_specs=spec), donate_argnums=0)
  x = jax.device_put(np.int32(0), jax.devices()[3])
  y = jax.device_put(np.zeros(16, np.int32), jax.sharding.NamedSharding(mesh, spec))
  each = int(1e6 * scale) // 5
  for k in Rounds():
    for _ in range(each // 10):
      for _ in range(9):
        x = one(x)
      y = ring(y)
    assert int(x) == (k + 1) * (each // 10) * 9 and (np.asarray(y) == (k + 1) * (each // 10)).all()


def arrays(scale):
  """100,000 live arrays, half of them put and half computed, then dropped; in each round"""
  import jax
  import numpy as np
  devices = jax.devices()[:16]
  count = int(5e4 * scale)
  twice = jax.jit(lambda x: 2 * x)
  for _ in Rounds(3):
    put = [jax.device_put(np.float32(k), devices[k % 16]) for k in range(count)]
    made = [twice(x) for x in put]
    assert len(jax.live_arrays()) >= 2 * count
    for k in range(0, count, max(1, count // 500)):
      assert float(made[k]) == 2 * k
    jax.block_until_ready(made)
    print(f'live: {2 * count} arrays', flush=True)
    sys.stdin.readline()
    del put, made


def arguments(scale):
  """programs with 10,000 arguments and results, on one device and over 16; ten launches in each round"""
  import jax
  import numpy as np
  count = int(1e4 * scale)
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:16]), ('i',))
  over_all = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('i'))
  f = jax.jit(lambda xs: [x + k for k, x in enumerate(xs)], donate_argnums=0)
  one = jax.device_put([np.float32(0)] * count, jax.devices()[9])
  many = jax.device_put([np.zeros(16, np.float32)] * (count // 10), over_all)
  for r in Rounds():
    for _ in range(10):
      one, many = f(one), f(many)
    for k in (0, 1, count // 2, count - 1):
      assert float(one[k]) == 10 * (r + 1) * k
    assert (np.asarray(many[-1]) == 10 * (r + 1) * (count // 10 - 1)).all()


def constants(scale):
  """a program with constants of 50 MB: compiled, run and dropped; another one in each round"""
  import jax
  import jax.numpy as jnp
  import numpy as np
  count = int(12.5e6 * scale)
  for r in Rounds():
    table = np.random.default_rng(r).integers(0, 1000, count).astype(np.int32)
    f = jax.jit(lambda k: jnp.asarray(table)[k] + k)
    for device in (jax.devices()[0], jax.devices()[15]):
      for k in (0, count // 2, count - 1):
        assert int(f(jax.device_put(np.int32(k), device))) == table[k] + k
    del f, table
    jax.clear_caches()


def executables(scale):
  """10,000 programs, no two alike, compiled, run once and dropped"""
  import jax
  import numpy as np
  each = int(1e4 * scale) // 5
  x = jax.device_put(np.arange(8, dtype=np.int32), jax.devices()[6])
  for r in Rounds():
    for k in range(r * each, (r + 1) * each):
      f = jax.jit(lambda x: x * 3 + k)  # pylint: disable=cell-var-from-loop
      y = f(x)
      if k % 100 == 0:
        assert int(y[7]) == 21 + k
        jax.clear_caches()
    del f, y
    jax.clear_caches()


def large(scale):
  """arrays of 2.25 GiB: put, programs on them, to the other slice, got; on one device, and sharded"""
  import jax
  import jax.numpy as jnp
  import numpy as np
  n = int((2304 << 20) // 4 * scale) // 128 * 128
  devices = jax.devices()[:16]
  over = lambda d: jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(d), ('i',)), jax.sharding.PartitionSpec('i'))
  add = jax.jit(lambda x: x + 1, donate_argnums=0)

  def timed(what, f):
    start = time.monotonic()
    out = jax.block_until_ready(f())
    print(f'  {what}: {time.monotonic() - start:.2f} s', flush=True)
    return out

  def check(x, plus):
    x = timed('get', lambda: np.asarray(x))
    for k in range(0, n, 1 << 20):
      assert np.array_equal(x[k:k + (1 << 20)], np.arange(k + plus, min(n, k + (1 << 20)) + plus, dtype=np.uint32)), k

  for _ in Rounds(2):
    for here, there in ((devices[2], devices[13]), (over(devices[:8]), over(devices[8:]))):
      x = timed('put', lambda: jax.device_put(np.arange(n, dtype=np.uint32), here))
      x = timed('a program on it', lambda: add(x))
      assert int(timed('a sum', lambda: jax.jit(lambda x: jnp.bitwise_xor.reduce(x >> 31))(x))) == 0
      y = timed('to the other slice', lambda: jax.device_put(x, there))
      x.delete()
      check(y, 1)
      y.delete()


MEASUREMENTS = {f.__name__: f for f in (steps, arrays, arguments, constants, executables, large)}


def client(name, scale):
  import pathwaysutils
  pathwaysutils.initialize()
  MEASUREMENTS[name](scale)


# The parent -------------------------------------------------------------------------------------------------------------


def own_memory(pid):
  """MiB that are not a file's: what two processes share counts once."""
  found = dict(re.findall(r'^(Pss_\w+):\s+(\d+) kB', pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text(), re.M))
  return (int(found['Pss_Anon']) + int(found['Pss_Shmem'])) / 1024


def servers(state_home):
  """(role, pid) of the cluster's processes."""
  for process in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
      if f'XDG_STATE_HOME={state_home}'.encode() in (process / 'environ').read_bytes().split(b'\0'):
        role = re.fullmatch(r'pathways_(\w+)', os.path.basename((process / 'cmdline').read_text().split('\0')[0]))
        if role:
          yield role[1], int(process.name)


def memory(state_home, client_pid):
  """MiB of the client and of each kind of server; workers are added up."""
  sums = {'client': own_memory(client_pid)}
  for role, pid in servers(state_home):
    with contextlib.suppress(OSError):
      sums[role] = sums.get(role, 0) + own_memory(pid)
  return sums


def settled(state_home, client_pid):
  """Memory when what the client dropped last has come back."""
  time.sleep(2)
  return memory(state_home, client_pid)


def measure(name, scale):
  """Rows of (round, seconds, memory)."""
  rows = []
  with setups.cluster() as env:
    env['PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS'] = '30'
    process = subprocess.Popen([sys.executable, __file__, '--client', name, str(scale)], env=env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
      for line in process.stdout:
        words = line.split()
        if words[0] not in ('round', 'live:'):
          print(line.rstrip(), file=sys.stderr, flush=True)
          continue
        found = settled(env['XDG_STATE_HOME'], process.pid)
        rows.append((line.strip(), words[0] == 'round', float(words[2]) if words[0] == 'round' else None, found))
        print(line.strip(), {k: round(v) for k, v in found.items()}, file=sys.stderr, flush=True)
        process.stdin.write('\n')
      if process.wait() != 0:
        raise RuntimeError(f'the client of {name} ended with {process.returncode}')
    finally:
      process.kill()
      process.wait()
  return rows


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('names', nargs='*', choices=[*MEASUREMENTS, []], help='these measurements; all by default')
  parser.add_argument('--scale', type=float, default=1, help='of the counts above')
  parser.add_argument('--allowed', type=float, default=24, help='MiB by which a process may differ after the first round')
  options = parser.parse_args()
  print('| what | process | after the first round | after the last | MiB at most | seconds per round |\n|---|---|---:|---:|---:|---|')
  grown = []
  for name in options.names or MEASUREMENTS:
    rows = measure(name, options.scale)
    rounds = [r for r in rows if r[1]]
    for role in rounds[0][3]:
      first, last, most = rounds[0][3][role], rounds[-1][3].get(role, 0), max(r[3].get(role, 0) for r in rows)
      times = ', '.join(f'{r[2]:.0f}' for r in rounds) if role == 'client' else ''
      print(f'| {MEASUREMENTS[name].__doc__ if role == "client" else ""} | {role} | {first:.0f} | {last:.0f} | {most:.0f} | {times} |', flush=True)
      if last > first + options.allowed:
        grown.append(f'{name}: {role} by {last - first:.0f} MiB')
  if grown:
    print('grown: ' + ', '.join(grown), file=sys.stderr)
  return 1 if grown else 0


if __name__ == '__main__':
  if sys.argv[1:2] == ['--client']:
    client(sys.argv[2], float(sys.argv[3]))
  else:
    sys.exit(main())
