"""The persistent cache of compiled programs: restarts, a second proxy, damage, full disks."""
import os
import re

import pytest

from client_process import run as run_client
from cluster import Cluster, wait_until

PROGRAM = '''
    mesh = Mesh(np.array(jax.devices()), ('x',))
    x = jax.device_put(np.arange(64, dtype=np.float32), NamedSharding(mesh, P('x')))
    f = jax.jit(lambda v: (v * 3).sum())
    compiled = f.lower(x).compile()
    say('result', float(compiled(x)), compiled.cost_analysis()['flops'], 'all-reduce' in compiled.as_text())
'''
RESULT = 'result 6048.0 '


def run(cluster, **env):
  """What a client prints that compiles the program."""
  return re.search('^result .*$', run_client(cluster, PROGRAM, **env), re.M)[0]


def proxy_log(cluster):
  return (cluster.state_home / 'openpathways' / cluster.name / 'logs' / 'proxy.log').read_text()


def compiled(cluster):
  return re.findall(r'\] compiled (\S+)', proxy_log(cluster))


def found(cluster):
  return re.findall(r'compile cache: (\S+) is there', proxy_log(cluster))


def restart(cluster):
  cluster.down()
  cluster.up()


def files(cluster):
  return sorted((cluster.state_home / 'cache').rglob('*.program'))


def test_a_restarted_cluster_does_not_compile_again(own_cluster):
  first = run(own_cluster)
  assert first.startswith(RESULT) and first.endswith('True')
  names = compiled(own_cluster)
  assert any('lambda' in name for name in names), proxy_log(own_cluster)
  wait_until(lambda: len(files(own_cluster)) == len(names), 10, 'programs are stored')

  restart(own_cluster)
  assert run(own_cluster) == first
  assert compiled(own_cluster) == []
  assert sorted(found(own_cluster)) == sorted(names)

  # Damage of each kind is found out, and the program is compiled and stored anew.
  for i, file in enumerate(files(own_cluster)):
    content = bytearray(file.read_bytes())
    content[len(content) * 2 // 3] ^= 0xff
    file.write_bytes([content, content[:100], b''][i % 3])
  restart(own_cluster)
  assert run(own_cluster) == first
  assert sorted(compiled(own_cluster)) == sorted(names)
  assert proxy_log(own_cluster).count('is removed: ') == len(names)
  wait_until(lambda: len(files(own_cluster)) == len(names), 10, 'programs are stored again')
  assert all(file.stat().st_size > 1000 for file in files(own_cluster))


@pytest.fixture
def pair(make_cluster, tmp_path_factory):
  """Two clusters with one directory of programs."""
  one = make_cluster('one', slices=1, tpu_type='v5p-8')
  two = Cluster(tmp_path_factory.mktemp('two'), f'two-{os.getpid()}', slices=1, tpu_type='v5p-8',
                extra=[f'--compilation-cache={one.state_home}/cache/openpathways/compiled_programs'])
  try:
    two.up()
    yield one, two
  finally:
    two.down()
    assert not two.processes()


def test_two_clusters_share_programs(pair):
  one, two = pair
  result = run(one)
  wait_until(lambda: len(files(one)) == len(compiled(one)), 10, 'programs are stored')
  assert run(two) == result
  assert compiled(two) == []
  # What a client's XLA_FLAGS say matters only where it is honoured (docs/decisions/005-compile-options.md).
  assert run(two, XLA_FLAGS='--xla_dump_to=/nowhere --xla_cpu_enable_fast_min_max=true') == result
  assert compiled(two) == []
  assert run(two, XLA_FLAGS='--xla_allow_excess_precision=false') == result
  assert len(compiled(two)) == len(compiled(one))


def test_an_unusable_directory_is_a_warning(make_cluster):
  own = make_cluster(slices=1, tpu_type='v5p-8', extra=['--compilation-cache=/dev/null/programs'])
  assert run(own).startswith(RESULT)
  wait_until(lambda: 'programs are not kept' in proxy_log(own), 10, 'a warning in the log')
  assert proxy_log(own).count('programs are not kept') == 1


def test_the_cache_can_be_off(make_cluster):
  own = make_cluster(slices=1, tpu_type='v5p-8', extra=['--compilation-cache=off'])
  assert 'the compile cache is in memory only' in proxy_log(own)
  assert run(own).startswith(RESULT) and files(own) == []

