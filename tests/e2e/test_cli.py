"""The command line: every wrong turn gets a clear message and leaves no process behind."""
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

import client_process
from cluster import PATHWAYS, SLOW, wait_until


@pytest.fixture
def small(make_cluster):
  """One slice with one host: quick to start. Not up yet."""
  return make_cluster(up=False, slices=1, tpu_type='v5e-4')


def pids(cluster):
  return sorted(p.pid for p in cluster.processes())


def try_up(cluster, *more):
  return subprocess.run([*cluster.up_command(), *more], env=cluster.environment(), text=True, stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60 * SLOW)


def test_up_twice_and_down_twice(small):
  first = try_up(small)
  assert first.returncode == 0, first.stdout
  running = pids(small)
  assert len(running) >= 3
  again = try_up(small)
  assert again.returncode == 0 and 'already running' in again.stdout, again.stdout
  assert f'grpc://127.0.0.1:{small.port}' in again.stdout
  assert pids(small) == running
  other = try_up(small, '--num-slices=2')
  assert other.returncode != 0 and 'already running' in other.stdout and 'pathways down' in other.stdout, other.stdout
  assert pids(small) == running
  down = small.down()
  assert down.returncode == 0 and not pids(small), down.stdout
  down = small.down()
  assert down.returncode == 0 and 'no cluster' in down.stdout, down.stdout


def test_status(small):
  before = small.command('status', f'--name={small.name}')
  assert before.returncode == 1 and small.name in before.stdout, before.stdout
  small.up()
  shown = small.command('status', f'--name={small.name}')
  assert shown.returncode == 0, shown.stdout
  for text in (str(small.port), 'emulat', 'READY'):
    assert re.search(text, shown.stdout, re.I), f'{text} is missing:\n{shown.stdout}'
  assert [(s['slice'], s['host'], s['state']) for s in small.slots()] == [(0, 0, 'READY')]


@pytest.mark.parametrize('number,code', [(signal.SIGINT, 130), (signal.SIGTERM, None), (signal.SIGKILL, None)], ids=lambda v: str(v))
@pytest.mark.parametrize('when', [0, 1, 2, 3])
def test_interrupted_up(small, number, code, when):
  """Ctrl-C in the middle, after `when` servers have been started."""
  up = subprocess.Popen(small.up_command(), env=small.environment(), stdin=subprocess.DEVNULL, text=True,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  if when:
    wait_until(lambda: len(pids(small)) >= when or up.poll() is not None, 20, f'{when} servers')
  up.send_signal(number)
  output, _ = up.communicate(timeout=30 * SLOW)
  if code is not None:
    assert up.returncode in (code, -number, 0), output  # 0: it was quicker than the signal
  if number == signal.SIGKILL:
    return_to_order = small.down()
    assert return_to_order.returncode == 0, return_to_order.stdout
  elif up.returncode == 0:
    small.down()
  assert not pids(small), output
  small.up()
  assert small.slots()


def test_used_port(small):
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    s.listen()
    small.port = s.getsockname()[1]
    done = try_up(small)
  assert done.returncode != 0 and str(small.port) in done.stdout and '--port' in done.stdout, done.stdout
  assert str(os.getpid()) in done.stdout, f'it could say who uses the port:\n{done.stdout}'
  assert not pids(small)


@pytest.mark.parametrize('kind', ['missing', 'not-a-library', 'not-a-plugin'])
def test_bad_plugin(small, tmp_path, kind):
  path = tmp_path / 'plugin.so'
  if kind == 'not-a-library':
    path.write_text('no library')
  elif kind == 'not-a-plugin':
    import glob
    path = glob.glob('/lib/*/libz.so.1')[0]
  done = try_up(small, f'--plugin={path}')
  assert done.returncode != 0 and str(path) in done.stdout, done.stdout
  assert not pids(small)


@pytest.mark.parametrize('tpu_type,legal', [('v5p-12', 'v5p-16'), ('tpuv5:3x3x3', '2x2x2'), ('v6e-3', 'v6e-4'), ('v9-8', 'v5p'),
                                            ('', 'v5p')])
def test_illegal_type_lists_the_legal_ones(small, tpu_type, legal):
  small.tpu_type = tpu_type
  done = try_up(small)
  assert done.returncode != 0 and legal in done.stdout, done.stdout
  assert not pids(small)


@pytest.mark.parametrize('arguments', [['--num-slices=0'], ['--num-slices=x'], ['--port=99999'], ['--name=a/b'], ['--no-such-flag']], ids=str)
def test_illegal_arguments(small, arguments):
  done = try_up(small, *arguments)
  assert done.returncode != 0 and arguments[0].split('=')[0].lstrip('-') in done.stdout, done.stdout
  assert not pids(small)


def test_stale_state_is_repaired(small):
  """All servers killed behind the command line's back, as by a reboot."""
  small.up()
  for process in small.processes():
    process.kill()
  wait_until(lambda: not pids(small), 10, 'the servers to be gone')
  status = small.command('status', f'--name={small.name}')
  assert status.returncode != 0 or re.search('dead|not running|died|lost|gone', status.stdout, re.I), status.stdout
  done = try_up(small)
  assert done.returncode == 0, done.stdout
  client_process.run(small, 'assert int(jax.jit(lambda x: x + 1)(1)) == 2')


@pytest.mark.parametrize('content', ['', '{', '{}', 'null', '{"name": 7, "servers": [1]}', '\x00\xff'], ids=repr)
def test_damaged_state_file(small, content):
  small.up()
  state = small.state_home / 'openpathways' / small.name / 'state.json'
  state.write_text(content)
  status = small.command('status', f'--name={small.name}')
  assert status.stdout.strip()
  done = try_up(small)
  assert done.returncode == 0, done.stdout
  wait_until(lambda: len(pids(small)) == 4, 10, 'resource manager, proxy and its compiler, worker')


def test_clusters_side_by_side(make_cluster):
  one = make_cluster('one', slices=1, tpu_type='v5e-4')
  two = make_cluster('two', slices=2, tpu_type='v4-8')
  for cluster, devices in ((one, 4), (two, 8)):
    client_process.run(cluster, f'assert jax.device_count() == {devices}; assert int(jax.jit(lambda x: x + 1)(1)) == 2')
  assert one.down().returncode == 0
  assert len(pids(one)) == len(pids(two))  # same state home: `two`'s servers are all that is left
  client_process.run(two, 'assert jax.device_count() == 8')
  assert two.down().returncode == 0 and not pids(two)


def test_run(small):
  small.up()
  script = 'import os, jax, pathwaysutils; pathwaysutils.initialize(); print(jax.device_count(), jax.devices()[0].platform, os.environ["JAX_BACKEND_TARGET"])'
  done = small.command('run', f'--name={small.name}', '--', sys.executable, '-c', script)
  assert done.returncode == 0 and f'4 tpu grpc://127.0.0.1:{small.port}' in done.stdout, done.stdout
  done = small.command('run', f'--name={small.name}', '--', sys.executable, '-c', 'raise SystemExit(7)')
  assert done.returncode == 7
  done = small.command('run', f'--name={small.name}', '--', '/no/such/program')
  assert done.returncode == 127 and '/no/such/program' in done.stdout
  done = small.command('run', '--name=nobody', '--', 'true')
  assert done.returncode != 0 and 'nobody' in done.stdout and 'pathways up' in done.stdout, done.stdout


def test_logs(small):
  small.up()
  everything = small.command('logs', f'--name={small.name}')
  assert everything.returncode == 0 and everything.stdout.strip(), everything.stdout
  worker = small.command('logs', f'--name={small.name}', 'worker')
  assert worker.returncode == 0 and worker.stdout.strip() and len(worker.stdout) < len(everything.stdout)
  wrong = small.command('logs', f'--name={small.name}', 'nobody')
  assert wrong.returncode != 0 and 'proxy' in wrong.stdout, wrong.stdout


def test_help():
  for words in ([], ['up'], ['down'], ['status'], ['logs'], ['run']):
    done = subprocess.run([PATHWAYS, *words, '--help'], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    assert done.returncode == 0 and len(done.stdout) > 100, (words, done.stdout)
