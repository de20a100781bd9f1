"""Container images without a container daemon: layers, their images, and archives that every runtime reads.

The same content always gives the same bytes: entries are sorted, times are the epoch, owners are root.
"""
import dataclasses
import functools
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile
import tempfile
import time

ARCHITECTURES = {'x86_64': 'amd64', 'aarch64': 'arm64'}
_OCI = 'application/vnd.oci.image.'
_KEPT = 7 * 24 * 3600  # seconds for which a store keeps what no image has used


@dataclasses.dataclass(frozen=True)
class Entry:
  """One file of an image. Exactly one of `source` (a file here), `data`, `link` is set; none of them: a folder."""
  mode: int = 0o644
  source: pathlib.Path | None = None
  data: bytes | None = None
  link: str | None = None


@dataclasses.dataclass(frozen=True)
class Blob:
  """Something stored under its digest. `diff_id` is the digest of a layer before compression."""
  digest: str
  size: int
  diff_id: str = ''


Files = dict[str, Entry]  # by path in the image, without a leading slash


@functools.cache
def file_digest(path):
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def with_parents(files):
  """`files`, and the folders that they lie in."""
  complete = dict(files)
  for path in files:
    for parent in pathlib.PurePosixPath(path).parents:
      if str(parent) != '.':
        complete.setdefault(str(parent), Entry(mode=0o755))
  return complete


class _HashingWriter:
  def __init__(self, target):
    self._target, self._hash, self.size = target, hashlib.sha256(), 0

  def write(self, data):
    self._hash.update(data)
    self.size += len(data)
    return self._target.write(data)

  def flush(self):
    self._target.flush()

  @property
  def digest(self):
    return 'sha256:' + self._hash.hexdigest()


class Store:
  """A folder of blobs by digest. A layer that it has already is not packed again."""

  def __init__(self, folder, compresslevel=6):
    self._folder, self._compresslevel = pathlib.Path(folder), compresslevel
    (self._folder / 'blobs' / 'sha256').mkdir(parents=True, exist_ok=True)
    (self._folder / 'layers').mkdir(exist_ok=True)

  def path(self, blob):
    return self._folder / 'blobs' / blob.digest.replace(':', '/')

  def add(self, data):
    blob = Blob('sha256:' + hashlib.sha256(data).hexdigest(), len(data))
    self.path(blob).write_bytes(data)
    return blob

  def layer(self, files):
    files = with_parents(files)
    known = self._folder / 'layers' / self._key(files)
    if known.exists():
      blob = Blob(**json.loads(known.read_text()))
      if self.path(blob).exists():
        os.utime(known)
        os.utime(self.path(blob))
        return blob
    with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
      compressed = _HashingWriter(file)
      with gzip.GzipFile(filename='', mode='wb', compresslevel=self._compresslevel, fileobj=compressed, mtime=0) as zipped:
        plain = _HashingWriter(zipped)
        _write_tar(plain, files)
    blob = Blob(compressed.digest, compressed.size, plain.digest)
    os.chmod(file.name, 0o644)
    os.replace(file.name, self.path(blob))
    known.write_text(json.dumps(dataclasses.asdict(blob)))
    return blob

  def remove_unused(self):
    for path in [*self._folder.glob('layers/*'), *self._folder.glob('blobs/sha256/*')]:
      if time.time() - path.stat().st_mtime > _KEPT:
        path.unlink()

  def _key(self, files):
    listing = hashlib.sha256(f'{self._compresslevel}\0'.encode())
    for path, entry in sorted(files.items()):
      if entry.source is not None:
        content = file_digest(entry.source)
      else:
        content = entry.link or hashlib.sha256(entry.data or b'').hexdigest()
      kind = 'link' if entry.link else 'folder' if entry.source is None and entry.data is None else 'file'
      listing.update(f'{path}\0{kind}\0{entry.mode:o}\0{content}\0'.encode())
    return listing.hexdigest()


def _write_tar(target, files):
  with tarfile.open(fileobj=target, mode='w|', format=tarfile.GNU_FORMAT) as tar:
    for path, entry in sorted(files.items()):
      info = tarfile.TarInfo(path)
      info.mode = entry.mode
      if entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        tar.addfile(info)
      elif entry.source is not None:
        info.size = entry.source.stat().st_size
        with open(entry.source, 'rb') as file:
          tar.addfile(info, file)
      elif entry.data is not None:
        info.size = len(entry.data)
        tar.addfile(info, io.BytesIO(entry.data))
      else:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)


def write_archive(store, target, name, layers, config, created):
  """Writes the image `name` (repository:tag) to the tar file `target`: an OCI layout that `docker load` reads too.

  `config` is the runtime's part of an image's configuration: Entrypoint, Env, User, Labels, …
  """
  platform = {'architecture': ARCHITECTURES[os.uname().machine], 'os': 'linux'}
  configuration = _json(store, {
      'created': created, **platform, 'config': config,
      'rootfs': {'type': 'layers', 'diff_ids': [layer.diff_id for layer in layers]},
      'history': [{'created': created, 'created_by': 'deploy/images/build'} for _ in layers]})
  manifest = _json(store, {
      'schemaVersion': 2, 'mediaType': _OCI + 'manifest.v1+json',
      'config': _descriptor('config.v1+json', configuration),
      'layers': [_descriptor('layer.v1.tar+gzip', layer) for layer in layers]})
  index = {
      'schemaVersion': 2, 'mediaType': _OCI + 'index.v1+json',
      'manifests': [{**_descriptor('manifest.v1+json', manifest), 'platform': platform, 'annotations': {
          'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': name.rpartition(':')[2]}}]}
  in_archive = {blob.digest: blob for blob in [configuration, manifest, *layers]}
  path = lambda blob: 'blobs/' + blob.digest.replace(':', '/')
  docker = [{'Config': path(configuration), 'RepoTags': [name], 'Layers': [path(layer) for layer in layers]}]
  files = {path(blob): Entry(source=store.path(blob)) for blob in in_archive.values()}
  for file_name, content in [('oci-layout', {'imageLayoutVersion': '1.0.0'}), ('index.json', index),
                             ('manifest.json', docker)]:
    files[file_name] = Entry(data=json.dumps(content).encode())
  partial = target.with_suffix('.partial')
  with open(partial, 'wb') as file:
    _write_tar(file, with_parents(files))
  os.replace(partial, target)
  return manifest


def unpack(files, folder):
  """Lays `files` out in `folder`, which must not exist."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True)
  for path, entry in sorted(with_parents(files).items()):
    target = folder / path
    if entry.link is not None:
      target.symlink_to(entry.link)
      continue
    if entry.source is not None:
      shutil.copyfile(entry.source, target)
    elif entry.data is not None:
      target.write_bytes(entry.data)
    else:
      target.mkdir()
    target.chmod(entry.mode)


def _json(store, content):
  return store.add(json.dumps(content).encode())


def _descriptor(kind, blob):
  return {'mediaType': _OCI + kind, 'digest': blob.digest, 'size': blob.size}
