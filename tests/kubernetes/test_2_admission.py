"""What the API server must refuse, and how it says so."""
import pytest

from kube import Failed, headless


def refused(kubernetes, manifest):
  with pytest.raises(Failed) as failed:
    kubernetes.apply(manifest)
  return failed.value.output


@pytest.mark.parametrize('machine_type, topology, possible', [
    ('ct5p-hightpu-4t', '2x2x3', '2x2x1, 2x2x2, 2x2x4, 2x4x4'),
    ('ct6e-standard-8t', '4x4', '2x4'),
    ('ct6e-standard-4t', '2x2x2', '1x1, 2x2, 2x4, 4x4'),
    ('ct4p-hightpu-4t', '4x4x4096', '4x4x4'),
])
def test_impossible_topology(installed, machine_type, topology, possible):
  output = refused(installed, headless('impossible', machine_type, topology))
  assert topology in output and machine_type in output and possible in output, output


def test_unknown_machine_type(installed):
  output = refused(installed, headless('unknown', 'a3-highgpu-8g'))
  assert 'a3-highgpu-8g' in output and 'ct5p-hightpu-4t' in output, output


def test_name_that_is_too_long(installed):
  output = refused(installed, headless('a-name-of-twenty-three-'[:22] + 'x'))
  assert '22 characters' in output, output


def test_no_slices(installed):
  assert 'numSlices' in refused(installed, headless('none', slices=0))


@pytest.mark.parametrize('change, message', [
    ({'slices': 3}, 'workers are immutable'),
    ({'topology': '2x2x4'}, 'workers are immutable'),
    ({'max_restarts': 7}, 'maxRestarts is immutable'),
])
def test_immutable_fields(installed, change, message):
  installed.apply(headless('immutable'))
  try:
    assert message in refused(installed, headless('immutable', **change))
    installed.apply(headless('immutable'))  # the same again is no change
  finally:
    installed.delete('immutable')
