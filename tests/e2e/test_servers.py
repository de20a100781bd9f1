"""The servers one by one, as a Kubernetes manifest starts them: order of start, probes, signals."""
import contextlib
import re
import signal
import socket
import subprocess
import time

import pytest

import client_process
from cluster import SLOW, wait_until
from servers import Deployment
from test_failures import program


@pytest.fixture
def deployment(tmp_path):
  one = Deployment(tmp_path)
  yield one
  one.stop()


WORK = program('''
    say('devices', len(jax.devices()), jax.devices()[0])
    x = spmd.integers(7, (16, 1 << 18))  # 16 MiB: more than the proxy keeps for workers that are not there
    y = spmd.put(x, everything)
    say('put')
    f = summing(everything)
    z = f(y)
    say('dispatched')
    np.testing.assert_array_equal(z, np.broadcast_to(x.mean(0), x.shape))
    slice_works(meshes[0])
    slice_works(meshes[1])
    say('done')
    ''')


def test_clients_may_come_before_the_workers(deployment):
  """The head is there, the workers come later: devices at once, and all work is held until it can be done."""
  deployment.start_rm()
  proxy = deployment.start_proxy()
  proxy.wait_for('IFRT proxy server started with status OK')
  with client_process.Client(deployment, WORK) as client:
    assert client.wait_for('devices', 60).startswith('16 device(')
    proxy.wait_for(r'work of clients waits for workers that have not come yet: slice 0 host 0, slice 0 host 1, slice 1 host 0')
    assert 'DATA_LOSS' not in client.output()
    for place in ((1, 1), (0, 0), (1, 0)):
      deployment.start_worker(*place).wait_for(f'this is slice {place[0]} host {place[1]}')
    time.sleep(0.5)
    assert 'done' not in client.output() and client.process.poll() is None, client.output()
    deployment.start_worker(0, 1)
    client.wait_for('done', 60)
    client.finish()


def test_a_waiting_client_can_be_interrupted(deployment):
  """Ctrl-C in a client that waits for workers ends it, and what it had under way does not disturb the next one."""
  deployment.start_rm()
  deployment.start_proxy().wait_for('IFRT proxy server started')
  with client_process.Client(deployment, program('''
      import signal
      signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
      y = spmd.put(np.ones((16, 1 << 18), np.float32), everything)
      z = summing(everything)(y)
      say('waiting')
      try:
        z.block_until_ready()
      except KeyboardInterrupt:
        say('interrupted')
        raise
      '''), PYTHONFAULTHANDLER='1') as client:
    client.wait_for('waiting', 60)
    time.sleep(1)
    client.process.send_signal(signal.SIGINT)
    try:
      assert client.process.wait(30 * SLOW) != 0, client.output()
    except subprocess.TimeoutExpired:
      client.process.send_signal(signal.SIGABRT)  # Python's fault handler prints where each thread is
      client.process.wait()
      raise AssertionError(client.output()) from None
  for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
    deployment.start_worker(*place)
  assert 'done' in client_process.run(deployment, WORK, seconds=60)


def test_a_worker_that_never_was_ready_is_waited_for_and_a_lost_one_is_not(deployment):
  rm = deployment.start_rm()
  proxy = deployment.start_proxy()
  proxy.wait_for('IFRT proxy server started')
  workers = {(0, 0): deployment.start_worker(0, 0), (0, 1): deployment.start_worker(0, 1)}
  rm.wait_for(r'\*\*\* 1/2 Pathways Slices Now Ready')
  with client_process.Client(deployment, program('''
      slice_works(meshes[0])
      held = jax.device_put(np.arange(3), slices[1][0])
      say('slice 0 works')
      sys.stdin.readline()
      lost(jax.device_put(np.arange(3), slices[0][0]))
      lost(probe(slices[0]))
      say('slice 0 is lost')
      sys.stdin.readline()
      np.testing.assert_array_equal(held, np.arange(3))
      slice_works(meshes[0])
      slice_works(meshes[1])
      say('all is well')
      ''')) as client:
    client.wait_for('slice 0 works', 60)
    workers[0, 0].kill()
    proxy.wait_for('slice 0 host 0 .* is lost')
    client.send()
    client.wait_for('slice 0 is lost', 20)
    # A worker that cannot make its devices is no loss either; here one whose plugin is none.
    bad = deployment.start_worker(1, 0, '--plugin=/dev/null')
    assert bad.process.wait(10) == 1
    for place in ((0, 0), (1, 0), (1, 1)):
      deployment.start_worker(*place)
    rm.wait_for(r'\*\*\* 2/2 Pathways Slices Now Ready')
    client.send()
    client.wait_for('all is well', 40)
    client.finish()


def test_probes(deployment):
  """Liveness is the service "", readiness is "ready", on the port that the server has anyway."""
  proxy = deployment.start_proxy()
  worker = deployment.start_worker(0, 1)
  proxy.wait_for('listening on port')
  worker.wait_for('Pathways Server serving on')
  for server in (proxy, worker):
    assert (server.health(), server.health('ready')) == ('SERVING', 'NOT_SERVING')
    assert server.health('nonsense') == 'an error'
  rm = deployment.start_rm()
  rm.wait_for('Pathways Server serving on')
  assert (rm.health(), rm.health('ready')) == ('SERVING', 'SERVING')
  for server in (proxy, worker):
    wait_until(lambda s=server: s.health('ready') == 'SERVING', 10, 'readiness once the resource manager is there')
    assert server.health() == 'SERVING'
  rm.kill()
  wait_until(lambda: worker.health('ready') == 'NOT_SERVING', 10, 'the worker to miss the resource manager')
  assert (worker.health(), proxy.health()) == ('SERVING', 'SERVING')
  deployment.start_rm()
  wait_until(lambda: worker.health('ready') == 'SERVING', 10, 'the worker to be registered again')


def test_a_frozen_worker_fails_its_probe(deployment):
  deployment.start_rm()
  worker = deployment.start_worker(0, 0)
  wait_until(lambda: worker.health('ready') == 'SERVING', 10, 'readiness')
  worker.process.send_signal(signal.SIGSTOP)
  try:
    wait_until(lambda: ') T ' in open(f'/proc/{worker.process.pid}/stat').read(), 5, 'all its threads to stop')
    assert worker.health().startswith('no answer')
  finally:
    worker.process.send_signal(signal.SIGCONT)
  wait_until(lambda: worker.health() == 'SERVING', 10, 'liveness')


def test_checks_of_load_balancers_are_tolerated(deployment):
  """Bare connects, half-open ones, and HTTP/1: no harm, and not a line in the log."""
  rm, proxy, worker = deployment.start_rm(), deployment.start_proxy(), deployment.start_worker(0, 0)
  proxy.wait_for('IFRT proxy server started')
  worker.wait_for('this is slice 0 host 0')
  before = [server.log() for server in (rm, proxy, worker)]
  for server in (rm, proxy, worker):
    for data in (b'', b'GET / HTTP/1.1\r\nHost: x\r\n\r\n', b'\0' * 64, b'PRI * HT'):
      with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(data)
      with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.settimeout(5)
        with contextlib.suppress(OSError):  # it may have hung up already
          s.sendall(data)
          s.shutdown(socket.SHUT_WR)
          while s.recv(1000):
            pass
    assert server.health() == 'SERVING'
  assert [server.log() for server in (rm, proxy, worker)] == before


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT], ids=str)
def test_servers_leave_cleanly_and_not_with_success(deployment, number):
  """An exit code of 0 would tell Kubernetes that the worker's job is done."""
  rm, proxy = deployment.start_rm(), deployment.start_proxy()
  workers = [deployment.start_worker(*place) for place in ((0, 0), (0, 1), (1, 0), (1, 1))]
  with client_process.Client(deployment, program('''
      f, x = summing(everything), spmd.put(np.ones((16, 1 << 14), np.float32), everything)
      say('running')
      while True: x = f(x)
      ''')) as client:
    client.wait_for('running', 60)
    for server in (workers[0], proxy, *workers[1:], rm):
      code, seconds = server.stop(number)
      assert code == 128 + number and seconds < 3, f'{server.log_path.name}: {code} after {seconds:.1f} s'
      assert re.search('stopping', server.log())


def test_servers_that_wait_for_the_resource_manager_leave_as_well(deployment):
  proxy, worker = deployment.start_proxy(), deployment.start_worker(0, 0)
  proxy.wait_for('cannot watch the cluster')
  worker.wait_for('Pathways Server serving on')
  for server in (proxy, worker):
    code, seconds = server.stop()
    assert code == 143 and seconds < 3, f'{server.log_path.name}: {code} after {seconds:.1f} s'


def test_a_wrong_place_is_told(deployment):
  """A worker that does not belong says what was expected, and goes on asking: the resource manager may be replaced."""
  deployment.start_rm()
  worker = deployment.start_worker(2, 0)
  worker.wait_for(r'slice 2 does not exist: this cluster has slices 0 to 1 \(--instance_count=2\)')
  worker.wait_for('(?s)trying again.*trying again')
  assert worker.alive()
  other = deployment.start_worker(1, 2)
  other.wait_for(r'host 2 does not exist: slice 1 \(tpuv5:2x2x2\) has hosts 0 to 1')


# Everything that public manifests have been seen to pass, in their spellings.
COMMON_FLAGS = ['--gcs_scratch_location=', '--enable_metrics_collection=true', '--noenforce_kernel_ipv6_support', '--alsologtostderr',
                '--v', '0', '--vmodule=a=1,b=2', '--stderrthreshold=0', '--xla_tpu_use_enhanced_launch_barrier=true',
                '--temporary_flags_for_debugging=temporary_flag_for_debugging_pipe_unreachable_timeout=30m;;;'
                'temporary_flag_for_debugging_enable_late_binding=false', '--never_heard_of', 'value', '--nor_of_this']
PROXY_FLAGS = ['--num_elastic_slices', '1', '--virtual_slices="tpuv5:2x2x2,tpuv5:2x2x2"', '--sidecar_name=external',
               '--cloud_pathways_external_sidecar_port=50052', '--cloud_pathways_external_sidecar_connect_timeout=300s',
               '--xla_tpu_enable_data_parallel_all_reduce_opt=true', '--xla_latency_hiding_scheduler_rerun', '2', '--xla_jf_spmd_threshold=0',
               '--megascale_graph_hang_threshold=60m']
WORKER_FLAGS = ['--cloud_pathways_sidecar_shm_directory=/tmp/shared-memory', '--tpu_pinned_host_allocation_recycle=true',
                '--tpu_premapped_buffer_size=34359738368', '--xprof_max_trace_buffers=16384', '--megascale_grpc_premap_memory_bytes=17179869184']
PROXY_ENV = {'PATHWAYS_HEAD': 'nowhere.invalid', 'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true',
             'XLA_FLAGS': '--xla_tpu_from_the_environment=1', 'TEST_UNDECLARED_OUTPUTS_DIR': '/tmp'}
WORKER_ENV = {'TPU_MIN_LOG_LEVEL': '0', 'TF_CPP_MIN_LOG_LEVEL': '0', 'XCLOUD_ENVIRONMENT': 'GCP', 'MEGASCALE_GRPC_ENABLE_XOR_TRACER': 'false',
              'MEGASCALE_NUM_SLICES': '2', 'JOBSET_NAME': 'js', 'REPLICATED_JOB_NAME': 'worker', 'PATHWAYS_HEAD': 'nowhere.invalid',
              'MEGASCALE_COORDINATOR_ADDRESS': 'nowhere.invalid', 'LIBTPU_INIT_ARGS': '--xla_foo', 'TPU_SKIP_MDS_QUERY': 'true',
              'XLA_FLAGS': '--xla_tpu_no_such_flag=1'}


def test_every_flag_of_public_manifests_is_taken(deployment):
  """Used, or named in the log with the reason why not; the cluster works. Compiler flags reach the compiler."""
  dump = deployment.folder / 'dump'
  deployment.start_rm(*COMMON_FLAGS, env={'HOST_ADDRESS': 'nowhere.invalid', 'TPU_SKIP_MDS_QUERY': 'true', 'REPLICATED_JOB_NAME': 'x'})
  proxy = deployment.start_proxy(*COMMON_FLAGS, *PROXY_FLAGS, f'--xla_dump_to={dump}', env=PROXY_ENV)
  workers = [deployment.start_worker(s, h, *COMMON_FLAGS, *WORKER_FLAGS,
                                     env={**WORKER_ENV, 'MEGASCALE_SLICE_ID': f"'{s}'", 'JOB_COMPLETION_INDEX': f'"{h}"'})
             for s in range(2) for h in range(2)]
  assert 'done' in client_process.run(deployment, WORK, seconds=60)
  assert list(dump.iterdir()), 'the compiler dumps its programs'
  used = {'server_port', 'resource_manager_address', 'v', 'xla_dump_to', 'temporary_flags_for_debugging'}
  for server in (proxy, *workers):
    log = server.log()
    said = '\n'.join(line for line in log.splitlines() if 'argv[' not in line)
    for argument in server.process.args[1:]:
      assert f": '{argument}'" in log, f'the line argv[...] of {argument}'
      name = re.sub('^--(no)?', '', argument).split('=')[0]
      assert not argument.startswith('--') or name in used or name in said, f'{server.log_path.name} says nothing of {name}'
    assert 'temporary flag temporary_flag_for_debugging_enable_late_binding=false is ignored' in said
  for name in ('XLA_FLAGS', 'JOBSET_NAME', 'LIBTPU_INIT_ARGS', 'TPU_SKIP_MDS_QUERY'):
    assert f'environment variable {name}=' in workers[0].log()
  for flag in ('--xla_tpu_from_the_environment=1', '--xla_latency_hiding_scheduler_rerun=2'):
    assert f'compiler flag {flag} is ignored: the plugin does not know it' in proxy.log()


@pytest.mark.parametrize('flags,message', [(['--num_elastic_slices=-1'], 'num_elastic_slices=-1'), (['--virtual_slices=v9:1x1'], "'v9:1x1'"),
                                           (['--server_port=many'], '--server_port wants an integer')], ids=str)
def test_a_flag_that_matters_is_checked(deployment, flags, message):
  proxy = deployment.start_proxy(*flags)
  assert proxy.process.wait(10) == 1
  assert message in proxy.log()


def test_a_worker_can_name_its_address(deployment):
  rm = deployment.start_rm()
  flag = deployment.start_worker(0, 0, '--worker_address=worker-0.example')
  deployment.start_worker(0, 1, env={'PATHWAYS_WORKER_ADDRESS': 'fd00::7'})
  rm.wait_for(rf'slice 0 host 0 .*, worker-0.example:{flag.port}\) is ready')
  rm.wait_for(r'slice 0 host 1 .*, \[fd00::7\]:\d+\) is ready')


def test_a_worker_without_a_slice_number_finds_its_place(deployment):
  """Some manifests tell only TPU_WORKER_ID, or nothing."""
  rm = deployment.start_rm()
  nothing = {'MEGASCALE_SLICE_ID': '', 'JOB_COMPLETION_INDEX': ''}
  deployment.start_worker(0, 0, env={**nothing, 'TPU_WORKER_ID': '1'}).wait_for('this is slice 0 host 1')
  deployment.start_worker(0, 0, env={**nothing, 'TPU_WORKER_ID': '1'}).wait_for('this is slice 1 host 1')
  deployment.start_worker(0, 0, env=nothing).wait_for('this is slice 0 host 0')
  deployment.start_worker(1, 0, env={'JOB_COMPLETION_INDEX': ''}).wait_for('this is slice 1 host 0')
  rm.wait_for(r'\*\*\* 2/2 Pathways Slices Now Ready')
