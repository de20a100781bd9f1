"""The document's launcher commands, on the test cluster."""
import sys

import pytest
import yaml

from kube import FIRST_CLIENT, NOTEBOOK, Failed, check_devices

NAME = 'launched'


@pytest.fixture(scope='module')
def context(installed):
  return installed.kubectl('config', 'current-context').strip()


def create(context, *more, name=NAME):
  return ['workload', 'create-pathways', f'--workload={name}', '--num-slices=2', '--tpu-type=v5p-16',
          '--project=my-project', '--zone=us-central1-a', f'--cluster={context}', *more]


def test_dry_run_is_the_documents_manifest(installed, context):
  job = yaml.safe_load(installed.pathways(*create(context, '--headless', '--dry-run')))
  assert (job['apiVersion'], job['kind'], job['metadata']['name']) == (
      'pathways-job.pathways.domain/v1', 'PathwaysJob', NAME)
  (workers,) = job['spec']['workers']
  assert (workers['type'], workers['topology'], workers['numSlices']) == ('ct5p-hightpu-4t', '2x2x2', 2)
  assert job['spec']['controller']['deploymentMode'] == 'default'
  assert installed.get('pathwaysjob', NAME) is None


@pytest.mark.parametrize('arguments, message', [
    (['--tpu-type=v5p-17', '--headless'], 'v5p-16'),
    (['--workload=a-name-of-twenty-three-c', '--headless'], '22'),
    ([], '--command'),
])
def test_bad_input(installed, context, arguments, message):
  with pytest.raises(Failed) as failed:
    installed.pathways(*create(context), *arguments)
  assert message in failed.value.output, failed.value.output


def test_create_list_connect_delete(installed, context):
  try:
    installed.pathways(*create(context, '--headless', '--wait'), timeout=240)
    listed = installed.pathways('workload', 'list', f'--cluster={context}')
    (line,) = [line for line in listed.splitlines() if NAME in line.split()]
    assert 'Running' in line and '2/2' in line, listed
    output = installed.pathways('connect', NAME, f'--cluster={context}', '--port=0', '--', sys.executable, '-c', FIRST_CLIENT)
    check_devices(output)
    installed.pathways('connect', NAME, f'--cluster={context}', '--port=0', '--', sys.executable, NOTEBOOK)
    with pytest.raises(Failed) as failed:
      installed.pathways(*create(context, '--headless'))
    assert NAME in failed.value.output
    installed.pathways('workload', 'delete', f'--workload={NAME}', f'--cluster={context}',
                       '--project=my-project', '--zone=us-central1-a')
    installed.await_gone(NAME)
    with pytest.raises(Failed) as failed:
      installed.pathways('workload', 'delete', f'--workload={NAME}', f'--cluster={context}')
    assert NAME in failed.value.output
  finally:
    installed.delete(NAME)
