"""Runs each module of client/ inside one JAX client of the shared cluster."""
import pathlib
import re
import sys

import pytest

from client_process import HERE, run_command

MODULES = sorted(p.stem for p in (HERE / 'client').glob('test_*.py'))


@pytest.mark.parametrize('module', MODULES)
def test_module(cluster, module, record_property):
  command = [sys.executable, '-m', 'pytest', '-q', '--tb=short', '--durations=3', '--rootdir', str(HERE), '-c',
             str(HERE / 'pytest.ini'), str(HERE / 'client' / f'{module}.py')]
  code, output = run_command(cluster, command, seconds=180)
  print(output)
  summary = output.strip().splitlines()[-1] if output.strip() else 'no output'
  record_property('inside', summary)
  assert code == 0, f'{summary}\n{cluster.logs()}'
  assert not re.search(r'\bskipped\b', summary), f'nothing may be skipped on a cluster: {summary}'
