"""Builds the images of the C++ programs and looks into what was built: the archives, not the folders that they came from.

    .venv/bin/python -m pytest deploy/images        (as root: programs run in a chroot, as the images' user)
"""
import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import tomllib

import pytest

import debian
import oci
from oci import Entry

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / 'deploy/images/build'
DESCRIPTIONS = tomllib.loads((ROOT / 'deploy/images/images.toml').read_text())
PROGRAMS = {'server': ['pathways_server'], 'proxy_server': ['pathways_proxy_server', 'pathways_compiler']}


class Image:
  """An image as its archive has it. Every digest on the way is checked."""

  def __init__(self, archive):
    with tarfile.open(archive) as tar:
      self._blobs = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    index = json.loads(self._blobs['index.json'])
    (descriptor,) = index['manifests']
    self.name = descriptor['annotations']['io.containerd.image.name']
    self.digest = descriptor['digest']
    self.manifest = json.loads(self._blob(descriptor))
    self.configuration = json.loads(self._blob(self.manifest['config']))
    self.config = self.configuration['config']
    self.docker = json.loads(self._blobs['manifest.json'])

  def _blob(self, descriptor):
    data = self._blobs['blobs/' + descriptor['digest'].replace(':', '/')]
    assert len(data) == descriptor['size']
    assert 'sha256:' + hashlib.sha256(data).hexdigest() == descriptor['digest']
    return data

  def extract(self, folder):
    for descriptor, diff_id in zip(self.manifest['layers'], self.configuration['rootfs']['diff_ids'], strict=True):
      layer = gzip.decompress(self._blob(descriptor))
      assert 'sha256:' + hashlib.sha256(layer).hexdigest() == diff_id
      with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert {(m.uid, m.gid, m.mtime) for m in tar} == {(0, 0, 0)}
        tar.extractall(folder)
    # As a container runtime does:
    folder.chmod(0o755)
    (folder / 'proc').mkdir()
    (folder / 'etc/hosts').write_text('127.0.0.1 localhost\n')


@pytest.fixture(scope='session')
def build(tmp_path_factory):
  """Builds images from one state of the sources, whatever happens to the working tree meanwhile."""
  programs = tmp_path_factory.mktemp('bin')
  for program in (ROOT / 'build/release/bin').glob('pathways_*'):
    shutil.copy2(program, programs)

  def run(out, *names):
    subprocess.run([BUILD, *names, '--bin', programs, '--out', out, '--repository=registry.test/pathways', '--tag=test'],
                   env={**os.environ, 'REVISION': '0' * 40, 'SOURCE_DATE_EPOCH': '1700000000'}, check=True)
    return {name: Image(out / f'{name}.tar') for name in names}

  return run


@pytest.fixture(scope='session')
def images(build, tmp_path_factory):
  return build(tmp_path_factory.mktemp('images'), *PROGRAMS)


@pytest.fixture(scope='session')
def roots(images, tmp_path_factory):
  folders = {name: tmp_path_factory.mktemp(name) for name in images}
  for name, image in images.items():
    image.extract(folders[name])
  return folders


def start(root, image, *arguments, environment=()):
  """The image's entrypoint, with nothing but the image's files, its environment and its user."""
  script = 'mount -t proc proc "$0/proc" && user=$1 && shift && exec chroot --userspec="$user" "$0" "$@"'
  variables = dict(variable.split('=', 1) for variable in [*image.config['Env'], *environment])
  return subprocess.Popen(
      ['unshare', '--mount', '--pid', '--fork', '--kill-child', 'sh', '-c', script, root, image.config['User'], *arguments],
      env={**variables, 'PATH': f'{variables["PATH"]}:/usr/sbin:/usr/bin:/sbin:/bin'}, stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT, text=True)


def end(process):
  """Kills what `start` has started: the namespace's first process, with which all others in it end. The user that it has
  changed to has undone --kill-child."""
  for child in pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text().split():
    os.kill(int(child), signal.SIGKILL)
  process.kill()


@contextlib.contextmanager
def running(process):
  alarm = threading.Timer(120, end, [process])  # then whoever reads its output sees the end
  alarm.start()
  try:
    yield process
  finally:
    alarm.cancel()
    if process.poll() is None:
      end(process)
    process.wait()


def wait_for(process, text):
  """Reads what the process prints until `text`; returns the line."""
  seen = []
  for line in process.stdout:
    seen.append(line)
    if text in line:
      return line
  raise AssertionError(f'ended without {text!r}:\n{"".join(seen)}')


def test_names_and_configuration(images):
  for name, image in images.items():
    assert image.name == f'registry.test/pathways/{name}:test'
    assert image.docker[0]['RepoTags'] == [image.name]
    user, group = image.config['User'].split(':')
    assert int(user) > 0 and int(group) > 0
    assert len(image.config['Entrypoint']) == 1 and 'Cmd' not in image.config
    labels = image.config['Labels']
    assert labels['org.opencontainers.image.licenses'] == 'Apache-2.0'
    assert labels['org.opencontainers.image.revision'] == '0' * 40
    assert labels['org.opencontainers.image.created'] == image.configuration['created'] == '2023-11-14T22:13:20Z'


def test_images_share_all_but_their_programs(images):
  layers = [{layer['digest']: layer['size'] for layer in image.manifest['layers']} for image in images.values()]
  shared = layers[0].keys() & layers[1].keys()
  assert len(shared) == 3
  for own in layers:
    assert sum(size for digest, size in own.items() if digest not in shared) < 20e6


def test_same_sources_same_image(images, build, tmp_path):
  assert build(tmp_path, 'server')['server'].digest == images['server'].digest


def test_programs_start(images, roots):
  """--help of every program: no library is missing, and the user may run it."""
  for name, programs in PROGRAMS.items():
    assert images[name].config['Entrypoint'] == [f'/opt/openpathways/bin/{programs[0]}']
    for program in programs:
      process = start(roots[name], images[name], f'/opt/openpathways/bin/{program}', '--help')
      output, _ = process.communicate(timeout=60)
      assert process.returncode == 0, output
      assert f'usage: /opt/openpathways/bin/{program}' in output


def test_one_image_two_roles(images, roots):
  image, root = images['server'], roots['server']
  for arguments, flag in [(['--node_type=resource_manager'], '--instance_count'), ([], '--resource_manager_address')]:
    output, _ = start(root, image, *image.config['Entrypoint'], *arguments, '--help').communicate(timeout=60)
    assert flag in output
  process = start(root, image, *image.config['Entrypoint'], '--node_type=nonsense')
  output, _ = process.communicate(timeout=60)
  assert process.returncode != 0 and '--node_type=nonsense' in output


def test_cluster_of_images(images, roots):
  """Resource manager, worker and proxy, each from its image: the plugin loads, and a client computes."""
  server, proxy = images['server'], images['proxy_server']
  with contextlib.ExitStack() as stack:
    manager = stack.enter_context(running(start(
        roots['server'], server, *server.config['Entrypoint'], '--node_type=resource_manager', '--server_port=0',
        '--instance_count=1', '--instance_type=tpuv6e:1x1')))
    manager_port = wait_for(manager, 'Pathways Server serving on').rsplit(':', 1)[1].strip()
    address = f'--resource_manager_address=localhost:{manager_port}'
    stack.enter_context(running(start(roots['server'], server, *server.config['Entrypoint'], address, '--server_port=0')))
    wait_for(manager, '1/1 Pathways Slices Now Ready')
    frontend = stack.enter_context(running(start(
        roots['proxy_server'], proxy, *proxy.config['Entrypoint'], address, '--server_port=0')))
    port = re.search(r'listening on port (\d+)', wait_for(frontend, 'listening on port'))[1]
    client = subprocess.run(
        [sys.executable, '-c', 'import pathwaysutils, jax; pathwaysutils.initialize(); print(jax.numpy.arange(4).sum())'],
        env={**os.environ, 'JAX_PLATFORMS': 'proxy', 'JAX_BACKEND_TARGET': f'grpc://localhost:{port}',
             'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS': 'true'}, capture_output=True, text=True, timeout=120)
    assert client.stdout.strip() == '6', client.stderr


def test_nothing_to_break_out_with(roots):
  """No shell, nothing that runs as somebody else, nothing that the user could change but /tmp."""
  for root in roots.values():
    for path in root.rglob('*'):
      if path == root / 'proc' or path.is_symlink():
        continue
      mode = path.stat().st_mode
      assert not mode & 0o6000, path
      assert not mode & 0o002 or path == root / 'tmp', path
    assert not [*root.rglob('bin/*sh')]
    assert (root / 'tmp').stat().st_mode & 0o7777 == 0o1777


def test_bill_of_materials(images, roots):
  for name, root in roots.items():
    document = json.loads((root / f'usr/share/sbom/openpathways-{name}.spdx.json').read_text())
    assert document['spdxVersion'] == 'SPDX-2.3'
    versions = {package['name']: package['versionInfo'] for package in document['packages']}
    libraries = [path for path in (root / 'usr/lib').rglob('*') if path.is_file() and not path.is_symlink()]
    assert len(libraries) > 20
    for package in debian.owners('/' + str(path.relative_to(root)) for path in libraries):
      assert versions[package.name] == package.version
      assert (root / f'usr/share/doc/{package.name}/copyright').stat().st_size > 0
    for package in debian.packages(DESCRIPTIONS[name].get('linked', ['base-files'])):
      assert versions[package.name] == package.version
      assert (root / f'usr/share/doc/{package.name}/copyright').stat().st_size > 0
      assert f'Version: {package.version}' in (root / f'var/lib/dpkg/status.d/{package.name}').read_text()
    (plugin,) = (p for p in document['packages'] if p['name'] == 'lammps-jax-pjrt-cpu')
    pin = f'lammps-jax-pjrt-cpu=={plugin["versionInfo"]} --hash=sha256:{plugin["checksums"][0]["checksumValue"]}'
    assert pin in (ROOT / 'requirements/deps.txt').read_text()
    identifiers = {package['SPDXID'] for package in document['packages']} | {'SPDXRef-DOCUMENT'}
    for relationship in document['relationships']:
      assert {relationship['spdxElementId'], relationship['relatedSpdxElement']} <= identifiers


def test_dockerfile_says_the_same(images):
  text = (ROOT / 'deploy/images/Dockerfile').read_text().replace('\\\n', ' ')
  for name, image in images.items():
    stage = re.search(rf'^FROM scratch AS {name}$(.*?)(?=^FROM|\Z)', text, re.MULTILINE | re.DOTALL)[1]
    instructions = dict(line.split(' ', 1) for line in stage.strip().splitlines())
    assert json.loads(instructions['ENTRYPOINT']) == image.config['Entrypoint']
    assert instructions['USER'] == image.config['User']
    assert sorted(instructions['ENV'].split()) == sorted(image.config['Env'])
    assert sorted(f'{port}/tcp' for port in instructions['EXPOSE'].split()) == sorted(image.config['ExposedPorts'])


def test_missing_library_is_named(tmp_path):
  library, program = tmp_path / 'libgone.so', tmp_path / 'program'
  subprocess.run(['cc', '-shared', '-o', library, '-xc', '-'], input=b'int gone(void) { return 0; }', check=True)
  subprocess.run(['cc', '-o', program, '-xc', '-', '-L', tmp_path, '-lgone'],
                 input=b'int gone(void); int main(void) { return gone(); }', check=True)
  library.unlink()
  with pytest.raises(RuntimeError, match='libgone.so'):
    debian.shared_libraries([program])


def test_file_without_a_package_is_refused(tmp_path):
  with pytest.raises(RuntimeError, match='belongs to no Debian package'):
    debian.owners([tmp_path / 'libown.so'])


def test_layers_are_packed_once(tmp_path):
  source = tmp_path / 'source'
  source.write_text('content')
  store = oci.Store(tmp_path / 'store')
  files = {'b/c': Entry(source=source), 'a': Entry(link='b/c'), 'b/d': Entry(data=b'more')}
  first = store.layer(files)
  inode = store.path(first).stat().st_ino
  os.utime(source, (1, 1))
  assert store.layer(dict(reversed(files.items()))) == first
  assert store.path(first).stat().st_ino == inode
  assert store.layer({**files, 'b/d': Entry(data=b'less')}) != first


def test_unused_layers_are_removed(tmp_path):
  store = oci.Store(tmp_path)
  old, new = store.layer({'a': Entry(data=b'old')}), store.layer({'a': Entry(data=b'new')})
  for path in [*tmp_path.glob('layers/*'), *tmp_path.glob('blobs/sha256/*')]:
    os.utime(path, (1, 1))
  store.layer({'a': Entry(data=b'new')})
  store.remove_unused()
  assert not store.path(old).exists() and store.path(new).exists()
  assert store.layer({'a': Entry(data=b'old')}) == old and store.path(old).exists()
