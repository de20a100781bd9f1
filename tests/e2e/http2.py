"""A hand-made HTTP/2 and gRPC sender, for saying things that no library would let a client say."""
import base64
import random
import socket
import struct

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, SETTINGS = 0, 1, 4


def frame(kind, flags, stream, payload):
  return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def _string(text):
  """HPACK: a literal of less than 2^14 bytes, without Huffman coding."""
  if len(text) < 127:
    return bytes([len(text)]) + text
  rest = len(text) - 127
  out = bytes([127])
  while rest >= 128:
    out += bytes([rest % 128 + 128])
    rest //= 128
  return out + bytes([rest]) + text


def headers(fields):
  return b''.join(b'\0' + _string(name) + _string(value) for name, value in fields)


def call_headers(path, metadata=()):
  return headers([(b':method', b'POST'), (b':scheme', b'http'), (b':path', path.encode()), (b':authority', b'localhost'),
                  (b'content-type', b'application/grpc'), (b'te', b'trailers'),
                  *((name.encode(), base64.b64encode(value)) for name, value in metadata)])


def message(body):
  """gRPC's framing of one message."""
  return struct.pack('>BI', 0, len(body)) + body


def call(path, bodies, metadata=(), end=True):
  """The bytes of a connection with one call that sends these messages."""
  out = PREFACE + frame(SETTINGS, 0, 0, b'') + frame(SETTINGS, 1, 0, b'') + frame(HEADERS, 4, 1, call_headers(path, metadata))
  for body in bodies:
    framed = message(body)
    for k in range(0, len(framed), 16384):
      out += frame(DATA, 0, 1, framed[k:k + 16384])
  return out + (frame(DATA, 1, 1, b'') if end else b'')


def exchange(port, data, seconds=0.3, host='127.0.0.1'):
  """Sends bytes; returns what came back until the peer closed or fell silent."""
  received = b''
  with socket.create_connection((host, port), timeout=5) as s:
    s.settimeout(seconds)
    try:
      s.sendall(data)
      while True:
        part = s.recv(65536)
        if not part:
          break
        received += part
    except (TimeoutError, ConnectionError):
      pass
  return received


def answer(host, port, path, body, seconds=5):
  """Makes a call; returns the message that came back, or None."""
  with socket.create_connection((host, port), timeout=seconds) as s:
    s.settimeout(seconds)
    s.sendall(call(path, [body]))
    received, data = b'', b''
    while True:
      while len(received) >= 9:
        size = int.from_bytes(received[:3], 'big')
        if len(received) < 9 + size:
          break
        kind, flags, stream = received[3], received[4], int.from_bytes(received[5:9], 'big')
        payload, received = received[9:9 + size], received[9 + size:]
        if kind == DATA:
          data += payload
        if stream == 1 and kind in (DATA, HEADERS) and flags & 1:
          return data[5:] if data else None
      part = s.recv(65536)
      if not part:
        return None
      received += part


def check_health(host, port, service):
  """By the gRPC health protocol."""
  try:
    body = field(1, service.encode()) if service else b''
    got = answer(host, port, '/grpc.health.v1.Health/Check', body)
  except OSError as error:
    return f'no answer: {error}'
  return {b'\x08\x01': 'SERVING', b'\x08\x02': 'NOT_SERVING', None: 'an error'}.get(got, f'nonsense: {got}')


# Protocol buffers -------------------------------------------------------------------------------------------------------


def varint(n):
  n &= (1 << 64) - 1
  out = b''
  while n >= 128:
    out += bytes([n % 128 + 128])
    n //= 128
  return out + bytes([n])


def field(number, value):
  """An int becomes a varint, bytes a length-delimited field, ('fixed64', n) a fixed64."""
  if isinstance(value, tuple):
    return varint(number << 3 | 1) + struct.pack('<Q', value[1] & (1 << 64) - 1)
  if isinstance(value, int):
    return varint(number << 3) + varint(value)
  return varint(number << 3 | 2) + varint(len(value)) + value


NUMBERS = [0, 1, 2, 3, 5, 7, 16, 144, 145, 1000, -1, -2, 2**31 - 1, 2**31, -2**31, 2**40, 2**48, 2**63 - 1, -2**63]


def random_message(rng: random.Random, depth=0):
  """A message that every parser takes (wrong types count as unknown fields), with contents that make no sense."""
  out = b''
  for _ in range(rng.randint(0, 6)):
    number, kind = rng.randint(1, 14), rng.randint(0, 5)
    if kind <= 1:
      out += field(number, rng.choice(NUMBERS))
    elif kind == 2:
      out += field(number, ('fixed64', rng.choice(NUMBERS)))
    elif kind == 3 or depth > 4:
      out += field(number, rng.choice([b'', b'device', b'{0,1}', b'xla::ifrt::HloSharding', b'xla::ifrt::XlaProgram', b'\xff' * 9,
                                       rng.randbytes(20), b'x' * 300]))
    else:
      out += field(number, random_message(rng, depth + 1))
  return out
