"""Nonsense at every port: an error or a closed connection for whoever sends it, nothing for anybody else."""
import random

import pytest

import client_process
import http2

SERVICE = '/xla.ifrt.proxy.GrpcIfrtService/'
SESSION_METADATA = ('ifrt-proxy-grpc-ifrt-session-metadata-bin', http2.field(1, http2.field(1, 25) + http2.field(2, 5)))
REQUESTS = [*range(2, 10), *range(11, 35)]  # the requests of IfrtRequest's oneof


def random_bytes(seed, size):
  return random.Random(seed).randbytes(size)


RAW = {
    'nothing': b'',
    'one-byte': b'\x00',
    'random': random_bytes(1, 100_000),
    'zeros': bytes(100_000),
    'ones': b'\xff' * 100_000,
    'http-1': b'GET / HTTP/1.1\r\nHost: x\r\n\r\n',
    'tls': bytes.fromhex('16030100c8010000c40303') + random_bytes(2, 200),
    'preface-and-random': http2.PREFACE + random_bytes(3, 50_000),
    'frame-too-large': http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b'') + b'\xff\xff\xff\x00\x00\x00\x00\x00\x01' + bytes(1000),
    'bad-hpack': http2.PREFACE + http2.frame(4, 0, 0, b'') + http2.frame(1, 4, 1, random_bytes(4, 500)),
    'huge-header': http2.PREFACE + http2.frame(4, 0, 0, b'') + http2.frame(1, 4, 1, http2.headers([(b':path', b'/' + b'x' * 16000)])),
    'data-without-headers': http2.PREFACE + http2.frame(4, 0, 0, b'') + http2.frame(0, 0, 7, b'hello'),
    'grpc-length-4GiB': http2.PREFACE + http2.frame(4, 0, 0, b'') + http2.frame(1, 4, 1, http2.call_headers(SERVICE + 'IfrtSession')) +
                        http2.frame(0, 0, 1, b'\0\xff\xff\xff\xff' + bytes(1000)),
    'grpc-compressed-flag': http2.PREFACE + http2.frame(4, 0, 0, b'') + http2.frame(1, 4, 1, http2.call_headers(SERVICE + 'GetVersion')) +
                            http2.frame(0, 1, 1, b'\x01\0\0\0\x04abcd'),
    'little-endian-lengths': b''.join(n.to_bytes(8, 'little') for n in (0, 1, 2**31, 2**32, 2**62, 2**63, 2**64 - 1)) + bytes(1000),
    'big-endian-lengths': b''.join(n.to_bytes(4, 'big') for n in (0, 1, 2**31, 2**32 - 1)) + bytes(1000),
}


@pytest.fixture(scope='module')
def target(tmp_path_factory):
  """A cluster for all of this file, with a client that computes on and on. What breaks it is found by `unharmed`."""
  from cluster import Cluster
  cluster = Cluster(tmp_path_factory.mktemp('malformed'), 'malformed')
  cluster.up()
  client = client_process.Client(cluster, '''
      mesh = spmd.mesh_of(jax.devices(), (16,), ('i',))
      f = jax.jit(jax.shard_map(lambda x: lax.psum(x, 'i'), mesh=mesh, in_specs=P('i'), out_specs=P('i')))
      for line in sys.stdin:
        x = spmd.integers(1, (16, 50))
        np.testing.assert_array_equal(f(spmd.put(x, mesh)), np.broadcast_to(x.sum(0), x.shape))
        say('fine')
      ''')
  try:
    client.send()
    client.wait_for('fine', 60)
    cluster.client = client
    cluster.pids = sorted(p.pid for p in cluster.processes())
    yield cluster
  finally:
    client.kill()
    cluster.down()


@pytest.fixture
def unharmed(target):
  yield target
  target.client.send()
  target.client.wait_for('fine', 20)
  assert sorted(p.pid for p in target.processes()) == target.pids, 'a server died'


@pytest.mark.parametrize('data', RAW.values(), ids=RAW.keys())
def test_raw_bytes(unharmed, data):
  for process in unharmed.processes():
    for port in process.ports():
      http2.exchange(port, data)


def test_connections_that_say_nothing(unharmed):
  """Two hundred idle connections at every port, while the client works."""
  import socket
  held = [socket.create_connection(('127.0.0.1', port)) for p in unharmed.processes() for port in p.ports() for _ in range(200)]
  unharmed.client.send()
  unharmed.client.wait_for('fine', 20)
  for s in held:
    s.close()


@pytest.mark.parametrize('method', ['GetVersion', 'IfrtSession', 'HostBufferStore', 'HostBufferLookup', 'HostBufferDelete',
                                    'HostBufferReadFromDisk', 'NoSuchMethod'])
def test_calls_with_random_messages(unharmed, method):
  rng = random.Random(method)
  port = unharmed.port
  for k in range(12):
    body = rng.randbytes(rng.randint(0, 200)) if k % 2 else http2.random_message(rng)
    metadata = [] if k % 3 else [SESSION_METADATA, ('ifrt-proxy-grpc-host-buffer-store-metadata-bin', http2.random_message(rng))]
    assert http2.exchange(port, http2.call(SERVICE + method, [body], metadata), 0.15), 'no answer at all'


@pytest.mark.parametrize('metadata', [b'', b'\xff\xff', http2.field(1, http2.field(1, 10**9)), http2.field(1, http2.field(1, -1))],
                         ids=['empty', 'garbage', 'version-too-new', 'version-negative'])
def test_sessions_of_unknown_versions(unharmed, metadata):
  http2.exchange(unharmed.port, http2.call(SERVICE + 'IfrtSession', [init(1)], [(SESSION_METADATA[0], metadata)], end=False))


def request(op, number, body):
  return http2.field(1, http2.field(1, ('fixed64', op))) + http2.field(number, body)


def init(op):
  return request(op, 2, b'')


@pytest.mark.parametrize('number', REQUESTS)
def test_requests_with_contents_that_make_no_sense(unharmed, number):
  """A proper session, in which one kind of request is filled with nonsense that parses."""
  rng = random.Random(number)
  bodies = [init(1), request(2, number, b'')] + [request(3 + k, number, http2.random_message(rng)) for k in range(60)]
  answer = http2.exchange(unharmed.port, http2.call(SERVICE + 'IfrtSession', bodies, [SESSION_METADATA], end=False), seconds=0.4)
  assert answer, 'no answer at all'


def test_every_kind_of_request_in_one_session(unharmed):
  rng = random.Random(99)
  bodies = [init(1)] + [request(2 + k, rng.choice(REQUESTS), http2.random_message(rng)) for k in range(400)]
  http2.exchange(unharmed.port, http2.call(SERVICE + 'IfrtSession', bodies, [SESSION_METADATA], end=False), seconds=0.5)


def test_requests_without_operation_or_body(unharmed):
  bodies = [init(1), b'', http2.field(1, b''), http2.field(2, b''), request(5, 99, b'x'), request(5, 5, b''), request(5, 5, b'')]
  http2.exchange(unharmed.port, http2.call(SERVICE + 'IfrtSession', bodies, [SESSION_METADATA], end=False))


def test_resource_manager_calls_with_random_messages(unharmed):
  service = '/openpathways.resource_manager.ResourceManager/'
  rng = random.Random(5)
  for method in ('Register', 'RegisterProxy', 'Watch', 'AllocateDeviceIds', 'GetStatus', 'NoSuchMethod'):
    for _ in range(8):
      for port in unharmed.resource_manager().ports():
        http2.exchange(port, http2.call(service + method, [http2.random_message(rng) for _ in range(3)]), seconds=0.05)
