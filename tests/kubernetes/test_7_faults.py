"""What goes wrong before anything runs: a condition and an event say what to do."""
import pytest
import yaml

from kube import headless, until


@pytest.fixture
def faulty(installed):
  made = []

  def make(name, **changes):
    job = yaml.safe_load(headless(name, topology='2x2x1', slices=1))
    job['spec'].update(changes)
    made.append(name)
    installed.apply(yaml.safe_dump(job))
    return installed

  yield make
  for name in made:
    installed.delete(name)


def told(kubernetes, name, reason, *words):
  """The condition Degraded with that reason, and an event, both with the words."""
  condition = kubernetes.await_condition(name, 'Degraded', reason)
  for word in words:
    assert word in condition['message'], condition
  until(lambda: any(all(word in message for word in words) for _, message in kubernetes.events(name)), 30,
        f'an event with {words}', lambda: kubernetes.events(name))


def test_image_that_cannot_be_pulled(faulty):
  kubernetes = faulty('no-image', pathwaysVersion='no-such-version')
  told(kubernetes, 'no-image', 'ImagePullFailed', 'no-such-version')


def test_node_that_is_too_small(faulty):
  kubernetes = faulty('too-small', customComponents=[
      {'componentType': 'worker', 'resources': {'requests': {'cpu': '100'}}}])
  told(kubernetes, 'too-small', 'Unschedulable', 'cpu')


def test_flag_that_ends_the_server(faulty):
  kubernetes = faulty('crashes', customComponents=[
      {'componentType': 'worker', 'customFlags': ['--server_port=nonsense']}])
  told(kubernetes, 'crashes', 'CrashLoopBackOff', 'pathways-worker')


def test_foreign_jobset_of_the_same_name(faulty, installed):
  installed.apply('''
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: foreign}
spec:
  suspend: true
  replicatedJobs:
  - name: other
    template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}}
''')
  uid = installed.get('jobset', 'foreign')['metadata']['uid']
  try:
    kubernetes = faulty('foreign')
    kubernetes.await_condition('foreign', 'Degraded')
    assert 'JobSet' in kubernetes.condition('foreign', 'Degraded')['message']
    assert kubernetes.get('jobset', 'foreign')['metadata']['uid'] == uid
    # Once it is out of the way, the cluster comes up.
    kubernetes.kubectl('delete', 'jobset', 'foreign')
    kubernetes.await_running('foreign')
  finally:
    installed.kubectl('delete', 'jobset', 'foreign', '--ignore-not-found')
