"""What an image needs of the Debian system that it is built on: shared libraries, and the packages that own them."""
import dataclasses
import os
import pathlib
import re
import subprocess

from oci import Entry


@dataclasses.dataclass(frozen=True)
class Package:
  name: str
  version: str
  architecture: str
  source: str
  source_version: str
  homepage: str

  @property
  def copyright_file(self):
    return pathlib.Path('/usr/share/doc') / self.name / 'copyright'


def shared_libraries(programs):
  """The shared libraries that `programs` need, with the links that they are found by, as files of an image."""
  files = {}
  for program in programs:
    done = subprocess.run(['ldd', program], capture_output=True, text=True)
    if done.returncode != 0 or 'not found' in done.stdout:
      raise RuntimeError(f'{program} needs libraries that are not here:\n{done.stdout}{done.stderr}')
    for path in re.findall(r'(?:=> |^\s+)(/\S+) \(0x', done.stdout, re.MULTILINE):
      files.update(_library(pathlib.Path(path)))
  return files


def _library(path):
  path = path.parent.resolve() / path.name  # /lib is /usr/lib
  files = {}
  while path.is_symlink():
    target = os.readlink(path)
    files[str(path)[1:]] = Entry(mode=0o777, link=target)
    path = (path.parent / target).parent.resolve() / pathlib.Path(target).name
  files[str(path)[1:]] = Entry(mode=0o755, source=path)
  return files


def owners(paths):
  """The packages that own the files `paths`, sorted. A file without an owner is an error: nobody could name its version."""
  paths = [str(path) for path in paths]
  # A file in /usr/lib may be known by its name in /lib, which is the same folder.
  asked = [name for path in paths for name in (path, path.removeprefix('/usr'))]
  listing = subprocess.run(['dpkg-query', '-S', *asked], capture_output=True, text=True).stdout
  owner = {}
  for line in listing.splitlines():
    package, _, path = line.partition(': ')
    owner[path] = package
  names = set()
  for path in paths:
    package = owner.get(path) or owner.get(path.removeprefix('/usr'))
    if package is None:
      raise RuntimeError(f'{path} belongs to no Debian package')
    names.add(package)
  return packages(names)


def packages(names):
  fields = ['Package', 'Version', 'Architecture', 'source:Package', 'source:Version', 'Homepage']
  output = subprocess.run(['dpkg-query', '-W', '-f', '\t'.join(f'${{{f}}}' for f in fields) + '\n', *sorted(names)],
                          check=True, capture_output=True, text=True).stdout
  return sorted((Package(*line.split('\t')) for line in output.splitlines()), key=lambda p: p.name)


def with_dependencies(names):
  """The packages `names` and all that they depend on, of those that are installed here."""
  listing = subprocess.run(['dpkg-query', '-W', '-f=${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n'],
                           check=True, capture_output=True, text=True).stdout
  depends, providers = {}, {}
  for package, provides, needs in (line.split('\t') for line in listing.splitlines()):
    depends[package] = [[re.split(r'[ (:]', name.strip())[0] for name in need.split('|')] for need in needs.split(',')]
    for provided in [package, *provides.split(',')]:
      providers.setdefault(re.split(r'[ (]', provided.strip())[0], []).append(package)
  found, wanted = set(), list(names)
  while wanted:
    package = wanted.pop()
    if package in found:
      continue
    found.add(package)
    for alternatives in depends[package]:
      wanted += [providers[name][0] for name in alternatives if name in providers][:1]
  return packages(found)


def files_of(owning, without=r'/usr/share/(doc|man|locale|info|lintian|bug)/'):
  """The files of whole packages, but for their documentation."""
  listing = subprocess.run(['dpkg-query', '-L', *(package.name for package in owning)], check=True, capture_output=True,
                           text=True).stdout
  files = {}
  for name in listing.splitlines():
    path = pathlib.Path(name)
    path = path.parent.resolve() / path.name
    if re.match(without, name) or not os.path.lexists(path) or path.is_dir() and not path.is_symlink():
      continue
    if path.is_symlink():
      files[str(path)[1:]] = Entry(mode=0o777, link=os.readlink(path))
    else:
      files[str(path)[1:]] = Entry(mode=path.stat().st_mode & 0o755, source=path)
  return files


def package_records(owning):
  """The copyright files of packages, and their entries in dpkg's database in the form that image scanners look for."""
  files = {}
  for package in owning:
    files[str(package.copyright_file)[1:]] = Entry(source=package.copyright_file.resolve(strict=True))
    status = subprocess.run(['dpkg-query', '-s', package.name], check=True, capture_output=True).stdout
    files[f'var/lib/dpkg/status.d/{package.name}'] = Entry(data=status)
  return files


def base_system(user, uid):
  """What every image has: one ordinary user, a place for temporary files, the trusted certificate authorities."""
  authorities = sorted(pathlib.Path('/usr/share/ca-certificates/mozilla').glob('*.crt'))
  if not authorities:
    raise RuntimeError('no certificate authorities under /usr/share/ca-certificates: install ca-certificates')
  owning = packages(['base-files', 'ca-certificates'])
  files = {
      'etc/passwd': Entry(data=f'root:x:0:0:root:/:/sbin/nologin\n{user}:x:{uid}:{uid}::/tmp:/sbin/nologin\n'.encode()),
      'etc/group': Entry(data=f'root:x:0:\n{user}:x:{uid}:\n'.encode()),
      'etc/nsswitch.conf': Entry(data=b'hosts: files dns\n'),
      'etc/os-release': Entry(source=pathlib.Path('/usr/lib/os-release')),
      'etc/debian_version': Entry(source=pathlib.Path('/etc/debian_version')),
      'etc/ssl/certs/ca-certificates.crt': Entry(data=b''.join(path.read_bytes() for path in authorities)),
      'tmp': Entry(mode=0o1777),
      **package_records(owning),
  }
  return files, owning


def merged_usr():
  """The links of Debian's file system: /lib is /usr/lib, and so on."""
  folders = ['bin', 'lib', 'lib64', 'sbin']
  return {name: Entry(mode=0o777, link=f'usr/{name}') for name in folders if pathlib.Path('/', name).is_symlink()}
