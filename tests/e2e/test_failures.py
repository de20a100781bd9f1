"""Dead and frozen servers: what clients see, and what goes on."""
import re
import signal
import subprocess
import time

import pytest

import client_process
from cluster import SLOW, wait_until

# Waits for an array that must turn out lost; says how long it took and what the error was.
PRELUDE = '''
import re, subprocess
slices = spmd.by_slice(jax.devices())
meshes = [spmd.mesh_of(s, (8,), ('i',)) for s in slices]
everything = spmd.mesh_of(jax.devices(), (16,), ('i',))

def summing(mesh):
  return jax.jit(jax.shard_map(lambda x: lax.psum(x, 'i') / mesh.size, mesh=mesh, in_specs=P('i'), out_specs=P('i')))

def lost(x):
  try:
    jax.block_until_ready(x)
  except jax.errors.JaxRuntimeError as error:
    text = str(error)
    assert 'DATA_LOSS' in text, text
    return text
  raise AssertionError('the array should be lost')

def probe(devices):
  """What the elastic manager of pathwaysutils does: dispatch must work, only waiting may fail."""
  return jax.pmap(lambda x: x + 1, devices=devices)(np.zeros((8,), np.float32) + 99)

def slice_works(mesh):
  x = spmd.integers(7, (8, 100))
  np.testing.assert_array_equal(summing(mesh)(spmd.put(x, mesh)), np.broadcast_to(x.mean(0), x.shape))

def first_line(text):
  return text.splitlines()[0]
'''


def program(text):
  import textwrap
  return PRELUDE + textwrap.dedent(text)


LIMIT = 5  # seconds from a worker's death to the error


@pytest.mark.parametrize('how', ['killed', 'frozen'])
def test_worker_dies_during_collectives(own_cluster, how):
  """The whole story: loss is told on the arrays, the other slice goes on, a replacement takes over the same ids."""
  cluster = own_cluster
  with client_process.Client(cluster, program('''
      f = summing(everything)
      f0 = summing(meshes[0])
      kept = jax.device_put(np.arange(8.0), slices[0][0])
      on_lost_slice = jax.device_put(np.arange(8.0), slices[1][0])
      on_lost_slices_other_host = jax.device_put(np.arange(8.0), slices[1][5])
      across = spmd.put(np.ones((16, 4), np.float32), everything)
      jax.block_until_ready([kept, on_lost_slice, on_lost_slices_other_host, across, probe(slices[0]), probe(slices[1])])
      x = spmd.put(np.ones((16, 1 << 14), np.float32), everything)
      say('running')
      start = None
      try:
        while True:
          for _ in range(20): x = f(x)
          x.block_until_ready()
      except jax.errors.JaxRuntimeError as error:
        say('lost', time.time(), first_line(str(error)))
        text = str(error)
      assert 'DATA_LOSS' in text, text
      assert re.search(r'slice 1\\b', text) and re.search(r'host 0\\b', text), text
      lost(x)

      lost(on_lost_slice)
      lost(across)
      np.testing.assert_array_equal(kept, np.arange(8.0))
      lost(jax.jit(lambda x: x + 1)(on_lost_slice))
      lost(jax.device_put(on_lost_slice, slices[0][3]))
      lost(jax.device_put(kept, slices[1][2]))
      lost(jax.device_put(np.zeros(3), slices[1][1]))
      y = probe(slices[1])
      lost(y)
      lost(f(spmd.put(np.ones((16, 4), np.float32), everything)))
      np.testing.assert_array_equal(probe(slices[0]), np.full(8, 100))
      slice_works(meshes[0])
      for array in (on_lost_slice, across, y, x): array.delete()
      say('other slice works')
      for line in sys.stdin:
        if 'replaced' in line: break
      np.testing.assert_array_equal(probe(slices[1]), np.full(8, 100))
      slice_works(meshes[1])
      z = spmd.integers(3, (16, 5))
      np.testing.assert_array_equal(f(spmd.put(z, everything)), np.broadcast_to(z.mean(0), z.shape))
      say('replacement works')
      ''')) as client:
    client.wait_for('running', 60)
    time.sleep(0.3)  # well into it
    victim = cluster.worker(1, 0)
    victim.kill(signal.SIGKILL if how == 'killed' else signal.SIGSTOP)
    killed = time.time()
    try:
      seen = client.wait_for('lost', LIMIT + 10)
      took = float(seen.split()[0]) - killed
      print(f'{how}: seen after {took:.2f} s: {seen}')
      assert took < LIMIT * SLOW, f'the loss was seen after {took:.1f} s: {seen}'
      client.wait_for('other slice works', 40)
      wait_until(lambda: cluster.slot(1, 0)['state'] == 'LOST', LIMIT, 'pathways status shows LOST')
      shown = cluster.command('status', f'--name={cluster.name}').stdout
      assert re.search('lost', shown, re.I), shown
      assert cluster.slot(0, 0)['state'] == 'READY'
    finally:
      if how == 'frozen':
        victim.kill(signal.SIGKILL)
    cluster.up()
    wait_until(lambda: cluster.slot(1, 0)['state'] == 'READY', 10, 'a replacement')
    client.send('replaced')
    client.wait_for('replacement works', 60)
    client.process.stdin.close()
    client.finish()


@pytest.mark.parametrize('end', ['sender', 'receiver'])
def test_worker_dies_during_a_transfer(own_cluster, end):
  """Slice to slice, many at once; whichever side dies, everything ends in a value or in DATA_LOSS."""
  cluster = own_cluster
  with client_process.Client(cluster, program('''
      x = jax.device_put(np.ones((16 << 20,), np.float32), slices[0][0])
      x.block_until_ready()
      say('running')
      start = time.time()
      while True:
        ys = [jax.device_put(x, slices[1][k % 4]) for k in range(4)]
        try:
          jax.block_until_ready(ys)
        except jax.errors.JaxRuntimeError as error:
          say('lost', time.time(), first_line(str(error)))
          assert 'DATA_LOSS' in str(error), error
          break
        assert time.time() < start + 60
      for y in ys:
        try:
          np.testing.assert_array_equal(y, np.ones((16 << 20,)))
        except jax.errors.JaxRuntimeError as error:
          assert 'DATA_LOSS' in str(error), error
      np.testing.assert_array_equal(jax.device_put(np.arange(5), slices[0][6]), np.arange(5))
      np.testing.assert_array_equal(jax.device_put(jax.device_put(np.arange(5), slices[0][6]), slices[1][6]) , np.arange(5))
      say('done')
      ''')) as client:
    client.wait_for('running', 60)
    time.sleep(0.2)
    cluster.worker(*((0, 0) if end == 'sender' else (1, 0))).kill()
    killed = time.time()
    seen = client.wait_for('lost', LIMIT + 10)
    assert float(seen.split()[0]) - killed < LIMIT * SLOW, seen
    client.wait_for('done', 30)
    client.finish()


def test_worker_dies_during_host_transfers(own_cluster):
  cluster = own_cluster
  with client_process.Client(cluster, program('''
      x = np.ones((8 << 20,), np.float32)
      say('running')
      start = time.time()
      while True:
        y = jax.device_put(x, slices[1][4])
        try:
          np.asarray(y + 1)
        except jax.errors.JaxRuntimeError as error:
          say('lost', time.time(), first_line(str(error)))
          assert 'DATA_LOSS' in str(error), error
          break
        assert time.time() < start + 60
      np.testing.assert_array_equal(jax.device_put(x, slices[0][1]), x)
      say('done')
      ''')) as client:
    client.wait_for('running', 60)
    time.sleep(0.5)
    cluster.worker(1, 1).kill()
    killed = time.time()
    seen = client.wait_for('lost', LIMIT + 10)
    assert float(seen.split()[0]) - killed < LIMIT * SLOW, seen
    assert re.search(r'slice 1\b', seen) and re.search(r'host 1\b', seen), seen
    client.wait_for('done', 30)
    client.finish()


def test_every_worker_dies(own_cluster):
  """Nothing hangs, and after `pathways up` the same client computes again."""
  cluster = own_cluster
  with client_process.Client(cluster, program('''
      x = spmd.put(np.ones((16, 4), np.float32), everything)
      f = summing(everything)
      jax.block_until_ready(f(x))
      say('running')
      sys.stdin.readline()
      for _ in range(5): lost(f(x))
      lost(probe(slices[0]))
      say('all lost')
      sys.stdin.readline()
      x = spmd.put(np.ones((16, 4), np.float32), everything)
      np.testing.assert_array_equal(f(x), np.ones((16, 4)))
      say('done')
      ''')) as client:
    client.wait_for('running', 60)
    for worker in cluster.workers():
      worker.kill()
    client.send()
    client.wait_for('all lost', 20)
    cluster.up()
    client.send()
    client.wait_for('done', 30)
    client.finish()


def test_proxy_dies(own_cluster):
  """The client ends, with an error or (JAX 0.10) an abort of its own, but does not hang; a repaired cluster serves the next
  one; what the old proxy held is freed."""
  cluster = own_cluster
  with client_process.Client(cluster, program('''
      x = jax.device_put(np.ones((1 << 20,), np.float32), slices[0][0])
      x.block_until_ready()
      say('running')
      while True: np.asarray(x + 1)
      ''')) as client:
    client.wait_for('running', 60)
    cluster.proxy().kill()
    assert client.process.wait(10 * SLOW) != 0
    assert 'UNAVAILABLE' in client.output()
  cluster.up()
  client_process.run(cluster, program('slice_works(meshes[0]); slice_works(meshes[1])'), seconds=30)
  wait_until(lambda: cluster.buffers() == 0, 15, "the dead proxy's buffers are freed")


def test_resource_manager_dies(own_cluster):
  """Clients that are connected go on; when it is started again, workers and proxy find it and new clients are served."""
  cluster = own_cluster
  with client_process.Client(cluster, program('''
      slice_works(meshes[0])
      say('running', jax.devices()[-1].id)
      for line in sys.stdin:
        end = time.time() + 2
        while time.time() < end:
          slice_works(meshes[1])
          z = spmd.integers(3, (16, 5))
          np.testing.assert_array_equal(summing(everything)(spmd.put(z, everything)), np.broadcast_to(z.mean(0), z.shape))
        say('still running')
      ''')) as client:
    last_id = int(client.wait_for('running', 60))
    manager = cluster.resource_manager()
    command = manager.command()
    manager.kill()
    client.send()
    client.wait_for('still running', 20)
    again = subprocess.Popen(command, env=cluster.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
      out = client_process.run(cluster, program('slice_works(meshes[0]); say("first", jax.devices()[0].id)'), seconds=40)
      assert int(re.search(r'^first (\d+)$', out, re.M)[1]) > last_id, 'device ids of a living session were given out again'
      client.send()
      client.wait_for('still running', 20)
    finally:
      again.kill()
      again.wait()


def test_compiler_crash_is_an_error(own_cluster):
  """XLA's CPU compiler aborts on this program; that costs the program, not the cluster."""
  out = client_process.run(own_cluster, program('''
      import ml_dtypes
      kept = jax.device_put(np.arange(5), slices[1][3])
      x = np.ones((16, 16, 3)).astype(ml_dtypes.int2)
      try:
        spmd.run(lambda x: lax.all_to_all(x, 'i', 0, 0), everything, x)
        say('it compiles')
      except jax.errors.JaxRuntimeError as error:
        say('refused', first_line(str(error)))
      np.testing.assert_array_equal(kept, np.arange(5))
      slice_works(meshes[0])
      slice_works(meshes[1])
      '''), seconds=60)
  assert re.search('^(refused|it compiles)', out, re.M)
