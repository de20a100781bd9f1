"""The bill of materials of an image, as SPDX 2.3 in JSON."""
import json
import re
import urllib.parse

PROJECT = 'https://github.com/openpathways/openpathways'


def openpathways(version, revision):
  return _package('openpathways', version, f'pkg:github/openpathways/openpathways@{revision}', homepage=PROJECT,
                  license='Apache-2.0')


def debian(package, release):
  """`release` is Debian's, e.g. 12."""
  purl = (f'pkg:deb/debian/{_quote(package.name)}@{_quote(package.version)}?arch={package.architecture}'
          f'&distro=debian-{release}&upstream={_quote(package.source)}@{_quote(package.source_version)}')
  return _package(package.name, package.version, purl, homepage=package.homepage, supplier='Organization: Debian')


def wheel(name, version, sha256):
  return _package(name, version, f'pkg:pypi/{name}@{version}', sha256=sha256)


def go_module(path, version):
  return _package(path, version, f'pkg:golang/{path}@{version}')


def document(name, packages, created, digest, build_inputs=()):
  """The document for the image `name`; its first package is the project itself, which contains or needs the others.

  `digest` tells one content of the image from another. `build_inputs` were compiled in.
  """
  everything = [*packages, *build_inputs]
  identifiers = [package['SPDXID'] for package in everything]
  if twice := {identifier for identifier in identifiers if identifiers.count(identifier) > 1}:
    raise ValueError(f'packages that are listed twice: {sorted(twice)}')
  own = packages[0]['SPDXID']
  relationships = [('SPDXRef-DOCUMENT', 'DESCRIBES', own)]
  relationships += [(own, 'DEPENDS_ON', package['SPDXID']) for package in packages[1:]]
  relationships += [(package['SPDXID'], 'BUILD_DEPENDENCY_OF', own) for package in build_inputs]
  return json.dumps({
      'spdxVersion': 'SPDX-2.3',
      'dataLicense': 'CC0-1.0',
      'SPDXID': 'SPDXRef-DOCUMENT',
      'name': name,
      'documentNamespace': f'{PROJECT}/sbom/{name}-{digest}',
      'creationInfo': {'created': created, 'creators': ['Tool: openpathways-deploy-images-build']},
      'packages': everything,
      'relationships': [{'spdxElementId': a, 'relationshipType': kind, 'relatedSpdxElement': b}
                        for a, kind, b in relationships],
  }, indent=1).encode()


def _quote(text):
  return urllib.parse.quote(text, safe='')


def _package(name, version, purl, homepage='', license='NOASSERTION', supplier='NOASSERTION', sha256=None):
  package = {
      'SPDXID': 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]+', '-', purl.partition('?')[0].removeprefix('pkg:')),
      'name': name,
      'versionInfo': version,
      'supplier': supplier,
      'downloadLocation': 'NOASSERTION',
      'filesAnalyzed': False,
      'licenseConcluded': 'NOASSERTION',
      'licenseDeclared': license,
      'copyrightText': 'NOASSERTION',
      'externalRefs': [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl', 'referenceLocator': purl}],
  }
  if homepage:
    package['homepage'] = homepage
  if sha256:
    package['checksums'] = [{'algorithm': 'SHA256', 'checksumValue': sha256}]
  return package
