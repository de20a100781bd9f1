"""`pathways install`: first of all files, since it begins with a cluster that has nothing of ours."""
import pytest

from kube import Failed, until


def test_without_jobset_install_says_what_is_missing(kubernetes, images):
  kubernetes.kubectl('delete', '-f', kubernetes.env['CLUSTER_JOBSET_MANIFEST'], '--ignore-not-found', timeout=180)
  with pytest.raises(Failed) as failed:
    kubernetes.pathways('install')
  assert 'JobSet' in failed.value.output and 'kubectl apply' in failed.value.output, failed.value.output
  assert kubernetes.get('namespace', 'pathways-job-system') is None, 'something was installed all the same'


def test_install(installed):
  deployment = installed.get('deployment', '-n', 'pathways-job-system', 'pathways-job-controller-manager')
  assert deployment['status']['availableReplicas'] == 1
  assert installed.get('crd', 'pathwaysjobs.pathways-job.pathways.domain')
  # The operator runs as nobody in particular.
  assert deployment['spec']['template']['spec']['securityContext']['runAsNonRoot'] is True


def test_installing_again_changes_nothing(installed):
  before = installed.get('deployment', '-n', 'pathways-job-system', 'pathways-job-controller-manager')
  installed.pathways('install', '--wait', timeout=120)
  after = installed.get('deployment', '-n', 'pathways-job-system', 'pathways-job-controller-manager')
  assert after['metadata']['generation'] == before['metadata']['generation']


def test_the_operator_comes_back(installed):
  installed.kubectl('delete', 'pod', '-n', 'pathways-job-system', '-l', 'control-plane=controller-manager')
  until(lambda: installed.get('deployment', '-n', 'pathways-job-system', 'pathways-job-controller-manager')['status'].get(
      'availableReplicas') == 1, 60, 'the operator to be back')
