"""Clients come and go, together and one after the other, well-behaved or not; the cluster stays as it was."""
import re

import client_process
from cluster import wait_until

# Puts, runs and reads a little of everything; `ring` is a program over all devices.
WORK = '''
    def work(seed=1):
      mesh = spmd.mesh_of(jax.devices(), (16,), ('i',))
      x = spmd.integers(seed, (16, 1 << 16))
      placed = spmd.put(x, mesh)
      total = jax.jit(jax.shard_map(lambda x: lax.psum(x, 'i'), mesh=mesh, in_specs=P('i'), out_specs=P('i')))(placed)
      np.testing.assert_array_equal(np.asarray(total)[3], x.sum(0))
      held = [jax.device_put(x[k], d) for k, d in enumerate(jax.devices())]
      moved = jax.device_put(held[0], jax.devices()[-1])
      np.testing.assert_array_equal(moved, x[0])
      return placed, total, held
'''


def program(text):
  return WORK.replace('\n    ', '\n') + '\n'.join(line.removeprefix('    ') for line in text.splitlines())


def test_fifty_clients_leave_nothing_behind(own_cluster):
  """Forked from one process that has JAX loaded, so that fifty real client processes take seconds; every fifth is killed."""
  cluster = own_cluster
  with client_process.Client(cluster, program('''
    import signal, traceback
    def session(k):
      pid = os.fork()
      if pid == 0:
        try:
          kept = work(k)
          if k % 5 == 4:
            os.kill(os.getpid(), signal.SIGKILL)
          sys.exit(0)  # the good end: JAX closes its connection
        except SystemExit:
          raise
        except BaseException:
          traceback.print_exc()
          os._exit(1)
      _, status = os.waitpid(pid, 0)
      assert status == 0 or k % 5 == 4 and os.WTERMSIG(status) == signal.SIGKILL, (k, status)
    k = 0
    for line in sys.stdin:
      for _ in range(int(line)):
        session(k)
        k += 1
      say('done', k)
    ''')) as client:

    def after(count, seconds):
      client.send(str(count))
      client.wait_for('done', seconds)
      # The last client's end is seen asynchronously.
      wait_until(lambda: cluster.buffers() == 0 and cluster.clients() == 0, 15, 'no buffers and no clients')
      servers = [p for p in cluster.processes() if p.role in ('proxy_server', 'worker', 'resource_manager')]
      return {p: (p.memory(), p.open_files(), p.threads()) for p in servers}, cluster.executables()

    warm, executables = after(12, 90)
    end, executables_at_the_end = after(38, 120)
    client.process.stdin.close()
    client.finish()
  assert executables_at_the_end <= executables
  warm = {(p.pid, p.role): v for p, v in warm.items()}
  for p, (memory, files, threads) in end.items():
    warm_memory, warm_files, warm_threads = warm[p.pid, p.role]
    # One session's arrays alone are 12 MiB in all and 3 MiB a worker; 38 of them would show.
    assert memory < warm_memory + (40 << 20), f'{p} grew from {warm_memory >> 20} to {memory >> 20} MiB in 38 sessions'
    assert files <= warm_files + 4, f'{p}: open files {warm_files} -> {files}'
    assert threads <= warm_threads + 4, f'{p}: threads {warm_threads} -> {threads}'


def test_killed_while_work_is_running(cluster):
  """kill -9 with hundreds of launches and transfers under way; the next client works at once."""
  for _ in range(2):
    with client_process.Client(cluster, program('''
    kept = work()
    mesh = spmd.mesh_of(jax.devices(), (16,), ('i',))
    f = jax.jit(jax.shard_map(lambda x: lax.psum(x, 'i') / 16, mesh=mesh, in_specs=P('i'), out_specs=P('i')))
    x = spmd.put(np.ones((16, 1 << 18), np.float32), mesh)
    for k in range(100000):
      x = f(x)
      y = jax.device_put(np.ones((1 << 18,), np.float32), jax.devices()[k % 16])
      if k == 100: say('running')
    ''')) as doomed:
      doomed.wait_for('running', 60)
      doomed.kill()
    client_process.run(cluster, program('work()'), seconds=30)
  wait_until(lambda: cluster.buffers() == 0, 15, "the killed clients' buffers are freed")
  assert all(w.alive() for w in cluster.workers()) and len(cluster.workers()) == 4


def test_two_clients_at_once(cluster):
  """Both use all devices at the same time; then one is killed and the other goes on."""
  loop = program('''
    kept = work()
    mesh = spmd.mesh_of(jax.devices(), (16,), ('i',))
    f = jax.jit(jax.shard_map(lambda x: lax.pmax(x, 'i') + lax.axis_index('i'), mesh=mesh, in_specs=P('i'), out_specs=P('i')))
    say('ids', sorted(d.id for d in jax.devices())[0])
    for line in sys.stdin:
      for _ in range(int(line)):
        x = spmd.put(np.zeros((16,), np.int32), mesh)
        for _ in range(20): x = f(x)
        np.testing.assert_array_equal(x, 19 * 15 + np.arange(16))
      say('done')
    ''')
  with client_process.Client(cluster, loop) as one, client_process.Client(cluster, loop) as other:
    assert one.wait_for('ids') != other.wait_for('ids')
    for client in (one, other):
      client.send('10')
    for client in (one, other):
      client.wait_for('done')
    one.send('1000000')
    other.send('5')
    other.wait_for('done')
    one.kill()
    other.send('10')
    other.wait_for('done')
    other.process.stdin.close()
    other.finish()


def test_user_context_and_python_memory_do_not_grow(cluster):
  """The client keeps one traceback for each request until the server lets go of it: many operations must not pile up."""
  out = client_process.run(cluster, '''
    import resource
    def rss():
      return int(open('/proc/self/statm').read().split()[1]) * 4096
    f = jax.jit(lambda x: x + 1)
    def many(n):
      x = jax.device_put(np.float32(0), jax.devices()[0])
      for k in range(n):
        x = f(x)
        if k % 100 == 99: x.block_until_ready()
      assert float(x) == n
    many(2000)
    before = rss()
    many(6000)
    say('grown', rss() - before)
    ''', seconds=90)
  grown = int(re.search(r'^grown (-?\d+)$', out, re.M)[1])
  assert grown < 12 << 20, f'client grew by {grown / 6000:.0f} bytes an operation'
