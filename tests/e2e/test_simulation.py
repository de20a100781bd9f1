"""A real client of many simulated workers: what it shows is the controller, at a size that this machine cannot hold."""
import pathlib
import re
import time

import pytest

import client_process
from servers import Deployment

HOSTS = 32

PROGRAM = '''
    say('devices', len(jax.devices()), len({d.slice_index for d in jax.devices()}))
    mesh = Mesh(np.array(jax.devices()), ('x',))
    sharding = NamedSharding(mesh, P('x'))
    x = jax.device_put(np.zeros(len(jax.devices()), np.float32), sharding)
    step = jax.jit(lambda x: x + x.sum(), out_shardings=sharding)
    start = time.monotonic()
    for _ in range(20):
      x = step(x)
    x.block_until_ready()
    say('took', time.monotonic() - start)
    try:
      np.asarray(x)
    except Exception as error:
      say('read:', error)
    say('ready for loss')
    sys.stdin.readline()
    try:
      step(x).block_until_ready()
    except Exception as error:
      say('lost:', error)
    '''


@pytest.fixture
def deployment(tmp_path):
  one = Deployment(tmp_path, slices=2, instance_type='tpuv5:4x4x4', hosts=HOSTS // 2)
  yield one
  one.stop()


def test_a_client_drives_many_simulated_workers(deployment):
  """Launches take their time on each device, nothing can be read, and a slice that is killed is lost as any other."""
  deployment.start_rm()
  simulate = lambda s: deployment.start('workers', 'pathways_simulated_workers', [
      f'--resource_manager_address=localhost:{deployment.rm_port}', f'--num_hosts={HOSTS // 2}', f'--slice_index={s}', '--launch_us=20000'])
  workers = [simulate(0), simulate(1)]
  proxy = deployment.start_proxy()
  proxy.wait_for('IFRT proxy server started with status OK')
  with client_process.Client(deployment, PROGRAM) as client:
    assert client.wait_for('devices', 60) == '128 2'
    assert float(client.wait_for('took', 60)) >= 20 * 0.02
    assert 'simulated' in client.wait_for('read:', 60)
    client.wait_for('ready for loss', 60)
    workers[1].kill()
    proxy.wait_for(r'slice 1 host 15 .* is lost')
    client.send('')
    assert 'DATA_LOSS' in client.wait_for('lost:', 60)
    client.finish()


ENQUEUE_FOR_EVER = '''
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ('x',)), P('x'))
    x = jax.device_put(np.zeros(len(jax.devices()), np.float32), sharding)
    step = jax.jit(lambda x: x + 1)
    for k in range(1_000_000):
      x = step(x)
      if k % 500 == 0: say('at', k)
    '''


def private_memory(server):
  """Bytes."""
  status = pathlib.Path(f'/proc/{server.pid()}/status').read_text(encoding='utf-8')
  return int(re.search(r'RssAnon:\s+(\d+) kB', status).group(1)) << 10


def test_a_client_that_enqueues_for_ever_is_held_back(deployment):
  """The devices do 50 steps a second, so the client soon waits for them; the proxy stays small and serves others."""
  deployment.start_rm()
  for s in (0, 1):
    deployment.start('workers', 'pathways_simulated_workers', [
        f'--resource_manager_address=localhost:{deployment.rm_port}', f'--num_hosts={HOSTS // 2}', f'--slice_index={s}', '--launch_us=20000'])
  proxy = deployment.start_proxy()
  proxy.wait_for('IFRT proxy server started with status OK')
  before = private_memory(proxy)
  with client_process.Client(deployment, ENQUEUE_FOR_EVER) as client:
    client.wait_for('at 500', 60)
    progress = lambda: max(int(line.split()[1]) for line in client.output().splitlines() if line.startswith('at '))
    last, since = progress(), time.monotonic()
    while time.monotonic() - since < 3:  # it does some 5000 steps a second while nobody holds it back
      time.sleep(0.1)
      if progress() > last + 500:
        last, since = progress(), time.monotonic()
      assert last < 200_000
    assert private_memory(proxy) - before < 200 << 20
    other = client_process.run(deployment, "say('devices', len(jax.devices()))")
    assert 'devices 128' in other
    client.kill()
  # What the client has left behind is dropped.
  proxy.wait_for('session [0-9]+ ended')
