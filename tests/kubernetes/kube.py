"""The test cluster, seen through kubectl, `pathways` and JAX clients, as its users see it."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / 'tests/kubernetes/cluster/cluster'
PATHWAYS = pathlib.Path(os.environ.get('PATHWAYS_BIN', ROOT / 'build/release/bin/pathways'))
NAMESPACE = 'default'

# What an unmodified user runs first, word for word.
FIRST_CLIENT = 'import pathwaysutils; import jax; import pprint; pathwaysutils.initialize(); pprint.pprint(jax.devices())'
NOTEBOOK = ROOT / 'examples/notebook.py'

# The user's document: a headless workload. The names in capitals are its placeholders.
HEADLESS = '''
apiVersion: pathways-job.pathways.domain/v1
kind: PathwaysJob
metadata:
  name: NAME
spec:
  maxRestarts: MAX_RESTARTS
  workers:
    - type: TPU_MACHINE_TYPE
      topology: TOPOLOGY
      numSlices: WORKLOAD_NODEPOOL_COUNT
  pathwaysDir: gs://BUCKET_NAME
  controller:
    deploymentMode: default
'''


def headless(name, machine_type='ct5p-hightpu-4t', topology='2x2x2', slices=2, max_restarts=0):
  """The document's manifest, placeholders filled in."""
  values = {'NAME': name, 'MAX_RESTARTS': max_restarts, 'TPU_MACHINE_TYPE': machine_type, 'TOPOLOGY': topology,
            'WORKLOAD_NODEPOOL_COUNT': slices}
  return re.sub('|'.join(values), lambda match: str(values[match.group()]), HEADLESS).replace('gs://BUCKET_NAME', 'gs://bucket')


class Failed(Exception):
  """A command that failed, with its output."""

  def __init__(self, command, code, output):
    super().__init__(f'{command} ended with {code}:\n{output}')
    self.code, self.output = code, output


def run(command, *, env, stdin=None, timeout=120, code=0):
  """Runs a command to its end; returns what it printed, errors too. `code`: the exit status to insist on, or None."""
  done = subprocess.run([str(word) for word in command], env=env, input=stdin, text=True, timeout=timeout,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, check=False)
  if code is not None and done.returncode != code:
    raise Failed(command, done.returncode, done.stdout)
  return done.stdout


class Kubernetes:
  """A running test cluster. `env` points a process at it; `dns_domain` is its second DNS domain."""

  def __init__(self, env):
    self.env = env
    self.dns_domain = env['CLUSTER_DNS_DOMAIN']

  # kubectl

  def kubectl(self, *arguments, **options):
    return run(['kubectl', *arguments], env=self.env, **options)

  def apply(self, manifest):
    return self.kubectl('apply', '-f', '-', stdin=manifest)

  def get(self, *arguments):
    """`kubectl get …` as data; None if there is no such object."""
    text = self.kubectl('get', *arguments, '--ignore-not-found', '-o', 'json')
    return json.loads(text) if text.strip() else None

  def pods(self, name):
    """The pods of a PathwaysJob, oldest first; without those that are on their way out."""
    items = self.get('pods', '-l', f'jobset.sigs.k8s.io/jobset-name={name}', '--sort-by=.metadata.creationTimestamp')['items']
    return [pod for pod in items if 'deletionTimestamp' not in pod['metadata']]

  def head_pod(self, name):
    (pod,) = [pod for pod in self.pods(name) if role(pod) == 'pathways-head']
    return pod['metadata']['name']

  def condition(self, name, kind):
    """A condition of a PathwaysJob, or None."""
    job = self.get('pathwaysjob', name)
    found = [c for c in (job or {}).get('status', {}).get('conditions', []) if c['type'] == kind]
    return found[0] if found else None

  def events(self, name):
    """The events about a PathwaysJob: [(reason, message)]."""
    items = self.get('events', '--field-selector', f'involvedObject.name={name},involvedObject.kind=PathwaysJob')['items']
    return [(event['reason'], event['message']) for event in items]

  def await_condition(self, name, kind, reason=None, timeout=120):
    """Waits until the condition is True (with that reason); returns it."""
    def holds():
      condition = self.condition(name, kind)
      return condition if condition and condition['status'] == 'True' and reason in (None, condition['reason']) else None
    return until(holds, timeout, f'{name} to be {kind} {reason or ""}', lambda: self.describe(name))

  def await_running(self, name, timeout=150):
    """Waits until every slice is ready and the job says that it runs."""
    self.await_condition(name, 'SlicesReady', timeout=timeout)
    return self.await_condition(name, 'Running', timeout=timeout)

  def await_gone(self, name, timeout=90):
    """Waits until nothing of a PathwaysJob is left: no object, no JobSet, no Job, pod or Service."""
    def left():
      text = self.kubectl('get', 'pathwaysjobs,jobsets,jobs,pods,services,endpointslices', '-o', 'name')
      return [line for line in text.split() if re.search(rf'/{re.escape(name)}(-|$)', line)]
    return until(lambda: not left(), timeout, f'all of {name} to go', left)

  def delete(self, name):
    self.kubectl('delete', 'pathwaysjob', name, '--ignore-not-found', '--wait=false')
    self.await_gone(name)

  def describe(self, name):
    """What one looks at when something does not work."""
    parts = [self.kubectl('get', 'pods', '-A', '-o', 'wide', code=None),
             self.kubectl('describe', 'pathwaysjob', name, code=None),
             self.kubectl('get', 'events', '--sort-by=.lastTimestamp', code=None)[-6000:],
             self.kubectl('logs', '-n', 'pathways-job-system', 'deployment/pathways-job-controller-manager', '--tail=40', code=None)]
    for pod in self.pods(name):
      parts.append(f'{pod["metadata"]["name"]}:\n' + self.kubectl(
          'logs', pod['metadata']['name'], '--all-containers', '--prefix', '--tail=30', code=None))
    return '\n'.join(parts)

  # pathways

  def pathways(self, *arguments, **options):
    return run([PATHWAYS, *arguments], env=self.env, **options)

  # Clients

  def client_env(self, target):
    return {**self.env, 'JAX_PLATFORMS': 'proxy', 'JAX_BACKEND_TARGET': target,
            'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true', 'PYTHONUNBUFFERED': '1',
            'PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS': '60'}

  def client(self, target, program, *, prefix=(), **options):
    """Runs Python that connects to the target, which is all that a user has to know."""
    return run([*prefix, sys.executable, '-c', textwrap.dedent(program)], env=self.client_env(target), **options)

  def check_connection(self, target, prefix=()):
    """The document's first command prints the 16 devices; its notebook gives the right values."""
    check_devices(self.client(target, FIRST_CLIENT, prefix=prefix))
    run([*prefix, sys.executable, NOTEBOOK], env=self.client_env(target))  # it checks its values itself

  @contextlib.contextmanager
  def port_forward(self, pod, port):
    """`kubectl port-forward POD :PORT`; gives the local port."""
    process = subprocess.Popen(['kubectl', 'port-forward', pod, f':{port}'], env=self.env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
      line = process.stdout.readline()
      match = re.match(r'Forwarding from 127.0.0.1:(\d+) -> ', line)
      assert match, line + process.stdout.read()
      yield int(match[1])
    finally:
      process.kill()
      process.wait()


def role(pod):
  return pod['metadata']['labels']['jobset.sigs.k8s.io/replicatedjob-name']


def until(condition, timeout, what, explain=lambda: ''):
  """Waits for a condition; returns its first true value."""
  deadline = time.monotonic() + timeout
  while True:
    value = condition()
    if value:
      return value
    assert time.monotonic() < deadline, f'waited {timeout} s for {what}\n{explain()}'
    time.sleep(0.5)


def check_devices(output):
  """Two slices of v5p-16, in the document's format: same coordinates, hosts and slices, whatever the ids."""
  found = re.findall(r'device\((\d+),TPU_DEVICE,coords=\[([\d,]+)\],vtask=(\d),slice=(\d),default_mem=device,mem_spaces=3\)', output)
  expected = [(f'{i % 2},{i // 2 % 2},{i // 4},0', str(i // 4), str(s)) for s in range(2) for i in range(8)]
  assert [device[1:] for device in found] == expected, output
  ids = [int(device[0]) for device in found]
  assert len(set(ids)) == 16 and ids == sorted(ids) and ids[0] > 0, output

