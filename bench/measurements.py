"""What is measured. Every measurement checks its result once, then gives seconds for one operation, several times over.

All of them run unchanged in a client of a Pathways cluster, in one-process JAX, and in each of the processes of multi-controller
JAX, where a process sees only its own devices' data.
"""
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

import transformer

MIB = 1 << 20
MEASUREMENTS = {}  # name -> (what it is, function of Context that returns seconds of each repetition)
OURS_ONLY = set()  # names of what makes sense for a cluster only


def measurement(name, what, ours_only=False):
  def register(f):
    MEASUREMENTS[name] = (what, f)
    if ours_only:
      OURS_ONLY.add(name)
    return f
  return register


class Context:
  """The devices, and how often to repeat."""

  def __init__(self, quick):
    self.quick = quick
    self.devices = jax.devices()[:16]
    assert len(self.devices) == 16
    self.local = [d for d in self.devices if d.process_index == jax.process_index()]
    self.mesh = Mesh(np.array(self.devices), ('i',))
    self.sharding = NamedSharding(self.mesh, P('i'))
    self.multi = jax.process_count() > 1
    # JAX's own CPU backend deadlocks in its collectives, in one process and with gloo, when more launches are enqueued.
    self.collectives_in_flight = 2 if self.devices[0].platform == 'cpu' else 100

  def count(self, n):
    return max(3, n // 5) if self.quick else n

  def spread(self, x, sharding=None):
    """A host array onto the mesh; every process gives its part."""
    return jax.make_array_from_callback(x.shape, sharding or self.sharding, lambda index: x[index])

  def mapped(self, f, **kw):
    return jax.jit(jax.shard_map(f, mesh=self.mesh, in_specs=P('i'), out_specs=P('i'), check_vma=False), **kw)


def check(array, expected):
  """Compares the parts that this process can see."""
  for shard in array.addressable_shards:
    np.testing.assert_allclose(shard.data, expected[shard.index], rtol=1e-5)


def timed(f, repetitions, warm=1):
  """Seconds of each call of `f`, which waits for its own result."""
  for _ in range(warm):
    f()
  seconds = []
  for _ in range(repetitions):
    start = time.perf_counter()
    f()
    seconds.append(time.perf_counter() - start)
  return seconds


# Small programs ------------------------------------------------------------------------------------------------------


def small_step(c):
  f = jax.jit(lambda x: x * 0.5 + 1)
  x = c.spread(np.ones((16, 1024), np.float32))
  check(f(f(x)), np.full((16, 1024), 1.75, np.float32))
  return f, x


@measurement('step-waited', 'small jitted step over 16 devices, waited for')
def step_waited(c):
  f, x = small_step(c)
  return timed(lambda: f(x).block_until_ready(), c.count(300), warm=20)


@measurement('step-pipelined', 'small jitted step over 16 devices, 500 in flight')
def step_pipelined(c):
  f, x = small_step(c)

  def chain():
    y = x
    for _ in range(500):
      y = f(y)
    y.block_until_ready()

  return [s / 500 for s in timed(chain, c.count(10))]


def scalar_psum(c):
  f = c.mapped(lambda x: lax.psum(x, 'i') / 16)
  x = c.spread(np.arange(16, dtype=np.float32))
  check(f(f(x)), np.full((16,), 7.5, np.float32))
  return f, x


@measurement('psum-waited', 'psum of a scalar over 16 devices, waited for')
def psum_waited(c):
  f, x = scalar_psum(c)
  return timed(lambda: f(x).block_until_ready(), c.count(200), warm=20)


@measurement('psum-chained', 'psum of a scalar over 16 devices, chained calls (100 in flight; the others: 2)')
def psum_chained(c):
  f, x = scalar_psum(c)

  def chain():
    y = x
    for k in range(100):
      y = f(y)
      if (k + 1) % c.collectives_in_flight == 0:
        y.block_until_ready()

  return [s / 100 for s in timed(chain, c.count(15))]


@measurement('psum-loop', 'psum of a scalar, 100 times inside one program')
def psum_loop(c):
  f = c.mapped(lambda x: lax.fori_loop(0, 100, lambda k, x: lax.psum(x, 'i') / 16, x))
  x = c.spread(np.arange(16, dtype=np.float32))
  check(f(x), np.full((16,), 7.5, np.float32))
  return [s / 100 for s in timed(lambda: f(x).block_until_ready(), c.count(15))]


# Collectives of large arrays -------------------------------------------------------------------------------------------


def collective(c, f, local, expected, repetitions):
  """`local`: elements a device; the block of device i holds the value i."""
  x = c.spread(np.repeat(np.arange(16, dtype=np.float32), local))
  g = c.mapped(f)
  check(g(x), expected)
  return timed(lambda: g(x).block_until_ready(), c.count(repetitions))


@measurement('all-reduce-16M', 'all-reduce, 16 MiB a device')
def all_reduce(c):
  local = 16 * MIB // 4
  return collective(c, lambda x: lax.psum(x, 'i'), local, np.full((16 * local,), 120, np.float32), 15)


def all_gather(c, size, repetitions):
  """`size` bytes is what every device has afterwards."""
  local = size // 4 // 16
  everything = np.tile(np.repeat(np.arange(16, dtype=np.float32), local), 16)
  return collective(c, lambda x: lax.all_gather(x, 'i', tiled=True), local, everything, repetitions)


def all_to_all(c, size, repetitions):
  local = size // 4
  exchanged = np.tile(np.repeat(np.arange(16, dtype=np.float32), local // 16), 16)
  return collective(c, lambda x: lax.all_to_all(x, 'i', 0, 0, tiled=True), local, exchanged, repetitions)


for _size in (1, 16):
  measurement(f'all-gather-{_size}M', f'all-gather to {_size} MiB on every device')(
      lambda c, size=_size: all_gather(c, size * MIB, 25))
  measurement(f'all-to-all-{_size}M', f'all-to-all, {_size} MiB a device')(
      lambda c, size=_size: all_to_all(c, size * MIB, 25))


# Host and device, slice and slice ---------------------------------------------------------------------------------------

BULK = 256 * MIB // 4


@measurement('put-one', 'host to one device, 256 MiB')
def put_one(c):
  x = np.arange(BULK, dtype=np.float32)
  device = c.local[-1]
  np.testing.assert_array_equal(jax.device_put(x, device), x)
  return timed(lambda: jax.device_put(x, device).block_until_ready(), c.count(10))


@measurement('put-sharded', 'host to 16 devices, 256 MiB in all')
def put_sharded(c):
  x = np.arange(BULK, dtype=np.float32)
  put = (lambda: c.spread(x)) if c.multi else (lambda: jax.device_put(x, c.sharding))
  check(put(), x)
  return timed(lambda: put().block_until_ready(), c.count(10))


@measurement('put-file', 'host to one device, 256 MiB, through a directory shared with the proxy', ours_only=True)
def put_file(c):
  return put_one(c)  # in a client whose environment says so; see setups.py


@measurement('write-file', 'of which the client writes the file', ours_only=True)
def write_file(c):
  path = os.path.join(os.environ['IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY'], 'bench')
  x = np.arange(BULK, dtype=np.float32)

  def write():
    with open(path, 'wb', buffering=0) as f:
      f.write(x)
    os.unlink(path)

  return timed(write, c.count(10))


def get(c, fresh, read, expected):
  """Reading back is timed alone, each time from an array that was never read before."""
  np.testing.assert_array_equal(read(fresh()), expected)
  seconds = []
  for _ in range(c.count(10)):
    y = fresh().block_until_ready()
    start = time.perf_counter()
    read(y)
    seconds.append(time.perf_counter() - start)
  return seconds


@measurement('get-one', 'one device to host, 256 MiB')
def get_one(c):
  x = np.arange(BULK, dtype=np.float32)
  y = jax.device_put(x, c.local[-1])
  add = jax.jit(lambda y: y + 1)
  return get(c, lambda: add(y), np.asarray, x + 1)


@measurement('get-sharded', '16 devices to host, 256 MiB in all')
def get_sharded(c):
  x = np.arange(BULK, dtype=np.float32)
  y = c.spread(x)
  add = jax.jit(lambda y: y + 1)
  if not c.multi:
    return get(c, lambda: add(y), np.asarray, x + 1)
  mine = np.concatenate([x[s.index] for s in y.addressable_shards]) + 1
  return get(c, lambda: add(y), lambda z: np.concatenate([np.asarray(s.data) for s in z.addressable_shards]), mine)


def between_slices(c):
  """128 MiB over slice 0's devices, their values, and where they go."""
  x = np.arange(128 * MIB // 4, dtype=np.float32)
  source, target = (NamedSharding(Mesh(np.array(c.devices[k:k + 8]), ('i',)), P('i')) for k in (0, 8))
  y = jax.device_put(x, source).block_until_ready()
  np.testing.assert_array_equal(jax.device_put(y, target), x)
  return x, y, target


@measurement('slice-to-slice', "slice 0's devices to slice 1's, 128 MiB in all")
def slice_to_slice(c):
  if c.multi:
    # Arrays of one process cannot be put onto another's devices: a collective permutation does the same work.
    move = c.mapped(lambda x: lax.ppermute(x, 'i', [(k, k + 8) for k in range(8)]))
    x = np.arange(128 * MIB // 4, dtype=np.float32)
    y = c.spread(np.concatenate([x, np.zeros_like(x)]))
    check(move(y), np.concatenate([np.zeros_like(x), x]))
    return timed(lambda: move(y).block_until_ready(), c.count(15))
  _, y, target = between_slices(c)
  return timed(lambda: jax.device_put(y, target).block_until_ready(), c.count(15))


@measurement('slice-to-slice-sockets', 'the same between hosts: without shared memory', ours_only=True)
def slice_to_slice_sockets(c):
  return slice_to_slice(c)  # on a cluster that has none; see setups.py


@measurement('slice-to-slice-read', 'the same with shared memory, and a program over slice 1 that reads all of it', ours_only=True)
def slice_to_slice_read(c):
  x, y, target = between_slices(c)
  largest = jax.jit(lambda z: z.max())
  assert largest(jax.device_put(y, target)) == x.max()
  return timed(lambda: largest(jax.device_put(y, target)).block_until_ready(), c.count(15))


@measurement('read', 'that program alone', ours_only=True)
def read_alone(c):
  _, y, target = between_slices(c)
  z = jax.device_put(y, target).block_until_ready()
  largest = jax.jit(lambda z: z.max())
  return timed(lambda: largest(z).block_until_ready(), c.count(15))


def small_arrays(c):
  share = 1000 // jax.process_count()
  return [np.full((256,), k, np.float32) for k in range(share)], [c.local[k % len(c.local)] for k in range(share)]


@measurement('put-1000', '1000 arrays of 1 KiB to devices')
def put_many(c):
  xs, devices = small_arrays(c)
  return timed(lambda: jax.block_until_ready([jax.device_put(x, d) for x, d in zip(xs, devices)]), c.count(10))


@measurement('get-1000', '1000 arrays of 1 KiB to the host')
def get_many(c):
  xs, devices = small_arrays(c)
  fresh = lambda: jax.block_until_ready([jax.device_put(x, d) for x, d in zip(xs, devices)])
  for got, x in zip(jax.device_get(fresh()), xs):
    np.testing.assert_array_equal(got, x)
  seconds = []
  for _ in range(c.count(10)):
    ys = fresh()
    start = time.perf_counter()
    jax.device_get(ys)
    seconds.append(time.perf_counter() - start)
  return seconds


# Others on the same cluster, and nobody at all ----------------------------------------------------------------------------


@measurement('step-beside-bulk', 'small jitted step, waited for, while another client puts and gets 256 MiB', ours_only=True)
def step_beside_bulk(c):
  return step_waited(c)  # the other client is started by setups.py


def bulk_client():
  """What the other client does, until it is ended."""
  c = Context(quick=True)
  x = np.arange(BULK, dtype=np.float32)
  while True:
    np.asarray(jax.device_put(x, c.sharding))


@measurement('first-devices', '`pathways up` of 4 workers to the first jax.devices()', ours_only=True)
@measurement('idle', 'CPU time of all servers of an idle cluster in 10 s', ours_only=True)
def outside(c):
  raise NotImplementedError('measured by setups.py, from outside a client')


# A training step -----------------------------------------------------------------------------------------------------


def training(c):
  """The jitted step with its arguments, as the model wants them spread."""
  mesh = Mesh(np.array(c.devices).reshape(4, 4), ('data', 'model'))
  named = lambda spec: NamedSharding(mesh, spec)
  shardings = jax.tree.map(named, transformer.SPECS, is_leaf=lambda s: isinstance(s, P))
  parameters = jax.tree.map(c.spread, transformer.initial_parameters(), shardings)
  batch = c.spread(transformer.tokens(), named(transformer.TOKENS))
  f = jax.jit(transformer.step, donate_argnums=0, out_shardings=(shardings, named(P())))
  return f, parameters, batch


@measurement('training-step', 'training step of a small transformer (4 data x 4 tensor parallel)')
def training_step(c):
  f, parameters, batch = training(c)
  losses = []

  def run():
    nonlocal parameters
    parameters, value = jax.block_until_ready(f(parameters, batch))
    losses.append(float(value.addressable_data(0)))

  seconds = timed(run, c.count(15), warm=3)
  assert abs(losses[0] - np.log(transformer.VOCABULARY)) < 1 and losses[-1] < losses[0] - 0.1, losses
  return seconds


@measurement('compile', 'compile the training step')
def compile_first(c):
  f, parameters, batch = training(c)
  lowered = f.lower(parameters, batch)
  start = time.perf_counter()
  compiled = lowered.compile()
  seconds = time.perf_counter() - start
  _, value = jax.block_until_ready(compiled(parameters, batch))
  assert np.isfinite(float(value.addressable_data(0)))
  return [seconds]


@measurement('compile-again', 'compile the same program again')
def compile_again(c):
  seconds = []
  for _ in range(3):
    jax.clear_caches()
    seconds += compile_first(c)
  return seconds
