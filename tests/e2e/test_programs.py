"""Runs each module of programs/ in one JAX client of the shared cluster and, at the same time, in one-process JAX on the CPU:
both must find the same."""
import re
import subprocess
import sys

import numpy as np
import pytest

from client_process import HERE, environment
from cluster import SLOW

PROGRAMS = sorted(p.stem for p in (HERE / 'programs').glob('[a-z]*.py'))
REFERENCE = {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': '--xla_force_host_platform_device_count=16'}


def tolerance(program):
  """What the module says of itself. It is not imported: that would bring JAX into this process."""
  return float(re.search(r'^TOLERANCE = (\S+)', (HERE / 'programs' / f'{program}.py').read_text(), re.M)[1])


@pytest.mark.parametrize('program', PROGRAMS)
def test_program(cluster, program, tmp_path):
  command = lambda backend: [sys.executable, '-m', 'programs', program, str(tmp_path / f'{backend}.npz')]
  client_environment = environment(cluster)
  reference_environment = {k: v for k, v in client_environment.items() if not k.startswith(('JAX_', 'IFRT_'))} | REFERENCE
  with open(tmp_path / 'reference.log', 'w+', encoding='utf-8') as log:
    reference = subprocess.Popen(command('reference'), env=reference_environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
      done = subprocess.run([*cluster.client_prefix, *command('proxy')], env=client_environment, stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180 * SLOW)
      print(done.stdout)
      assert done.returncode == 0, f'{done.stdout[-4000:]}\n{cluster.logs()}'
      code = reference.wait(180 * SLOW)
    finally:
      reference.kill()
      reference.wait()
    log.seek(0)
    assert code == 0, f'the reference itself fails:\n{log.read()[-4000:]}'
  ours, theirs = (np.load(tmp_path / f'{backend}.npz') for backend in ('proxy', 'reference'))
  assert sorted(ours) == sorted(theirs) and len(ours.files) > 0
  for name in theirs:
    assert np.isfinite(theirs[name]).all(), f'{name} says nothing'
    bound = tolerance(program)
    np.testing.assert_allclose(ours[name], theirs[name], rtol=bound, atol=bound, err_msg=name)
