"""The document's notebooks: as the main container of the head pod, as a Job of its own, and on the user's machine."""
import os
import shutil
import socket
import subprocess
import tempfile

import pytest

from jupyter import CONNECT, HELLO_WORLD, TWO_SLICES, Server, token_from
from kube import PATHWAYS, check_devices, run, until

NAME = 'with-notebook'
SEPARATE = '''
apiVersion: batch/v1
kind: Job
metadata:
  name: jupyter-notebook-user
spec:
  template:
    spec:
      restartPolicy: OnFailure
      containers:
      - name: jupyter-notebook
        image: jupyter/base-notebook
        ports:
        - containerPort: 8888
'''


@pytest.fixture(scope='module')
def job(installed, notebook_image):
  """A notebook server in the head pod, by the document's launcher command."""
  context = installed.kubectl('config', 'current-context').strip()
  installed.pathways('workload', 'create-pathways', f'--workload={NAME}', '--num-slices=2', '--tpu-type=v5p-16',
                     '--project=my-project', '--zone=us-central1-a', f'--cluster={context}',
                     '--docker-image=jupyter/base-notebook', '--command', 'start-notebook.sh')
  try:
    installed.await_running(NAME, timeout=240)
    yield installed
  finally:
    installed.delete(NAME)


def token_of(kubernetes, pod, *container):
  return until(lambda: token_from(kubernetes.kubectl('logs', pod, *container, code=None)), 90,
               'the notebook server to print its URL', lambda: kubernetes.kubectl('logs', pod, *container, code=None))


def check_cells(server, *before):
  """The document's cells in a real kernel: 16 devices, and the two slices' results."""
  *_, devices, results = server.execute([*before, HELLO_WORLD, TWO_SLICES])
  check_devices(devices)
  assert '[16 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16]' in results, results
  assert '[8 8 8 8 8 8 8 8]' in results and '[ 8  9 10 11 12 13 14 15]' in results, results


def test_in_the_head_pod(job):
  pod = job.head_pod(NAME)
  container = job.get('pod', pod)['status']['containerStatuses'][0]['name']
  token = token_of(job, pod, '-c', container)
  with job.port_forward(f'pod/{pod}', 8888) as port:
    # The container has the address already: the cell that sets it is not needed, and does no harm.
    check_cells(Server(port, token))


def test_in_a_job_of_its_own(job):
  job.apply(SEPARATE)
  try:
    pod = until(lambda: (job.get('pods', '-l', 'batch.kubernetes.io/job-name=jupyter-notebook-user')['items'] or [None])[0],
                30, 'the pod')['metadata']['name']
    job.kubectl('wait', '--for=condition=Ready', f'pod/{pod}', '--timeout=90s')
    token = token_of(job, pod)
    address = job.get('pathwaysjob', NAME)['status']['address']
    with job.port_forward(f'pod/{pod}', 8888) as port:
      check_cells(Server(port, token), CONNECT.replace('ADDRESS', address) + '%env IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true')
  finally:
    job.kubectl('delete', 'job', 'jupyter-notebook-user', '--wait')


def test_in_a_browser(job, screenshots):
  """JupyterLab's own page loads in Chromium, through the port-forward, and shows the launcher."""
  browser = shutil.which('chromium')
  assert browser, 'the package chromium is missing: ./dev kubernetes installs it'
  pod = job.head_pod(NAME)
  container = job.get('pod', pod)['status']['containerStatuses'][0]['name']
  token = token_of(job, pod, '-c', container)
  picture = screenshots / 'jupyterlab.png'
  with job.port_forward(f'pod/{pod}', 8888) as port:
    page = run([browser, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
                '--window-size=1280,900', '--virtual-time-budget=30000', f'--screenshot={picture}', '--dump-dom',
                f'http://127.0.0.1:{port}/lab?token={token}'], env=job.env, timeout=120)
  assert 'jp-Launcher' in page or 'jp-LabShell' in page, f'{page[-3000:]}\nsee {picture}'


def test_on_this_machine(job):
  """`pathways notebook` starts JupyterLab here; its kernels reach the cluster without a cell that says how."""
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    port = probe.getsockname()[1]
  jupyter_bin = os.environ.get('PATHWAYS_NOTEBOOK_VENV')
  env = dict(job.env, PATH=f'{jupyter_bin}/bin:{job.env["PATH"]}') if jupyter_bin else job.env
  context = job.kubectl('config', 'current-context').strip()
  output = tempfile.TemporaryFile('w+')
  process = subprocess.Popen([PATHWAYS, 'notebook', f'--workload={NAME}', f'--cluster={context}', f'--port={port}', '--proxy-port=0', '--',
                              '--no-browser', '--allow-root', '--IdentityProvider.token=secret'],
                             env=env, text=True, stdout=output, stderr=subprocess.STDOUT)
  try:
    server = Server(port, 'secret')
    until(lambda: server.answers() or process.poll() is not None, 90, 'JupyterLab to answer')
    assert process.poll() is None, output.seek(0) or output.read()
    check_cells(server)
  finally:
    process.terminate()
    process.wait(30)
