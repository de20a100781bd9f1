"""JupyterLab's API, as its pages use it: kernels over HTTP, cells over a WebSocket."""
import json
import re
import time
import urllib.request
import uuid

import websocket

# The document's cells; ADDRESS is its placeholder.
CONNECT = '''
%env JAX_PLATFORMS=proxy
%env JAX_BACKEND_TARGET=ADDRESS
'''
HELLO_WORLD = '''
import pathwaysutils
import jax

pathwaysutils.initialize()
print(jax.devices())
'''
TWO_SLICES = '''
import jax.numpy as jnp
from jax import lax
import numpy as np
print(jax.jit(jnp.sin, device=jax.devices()[-1])(np.pi / 2.))
f = jax.pmap(lambda x: lax.psum(1, 'i'), 'i')
print(f(jnp.arange(jax.device_count())))
slice0_devices = [d for d in jax.devices() if d.slice_index == 0]
f = jax.pmap(lambda x: lax.psum(1, 'i'), 'i', devices=slice0_devices)
y = f(jnp.arange(len(slice0_devices)))
print(y)
print(y.global_shards)
slice1_devices = [d for d in jax.devices() if d.slice_index == 1]
g = jax.pmap(lambda x: x + lax.axis_index('i'), 'i', devices=slice1_devices)
z = g(y)
print(z)
print(z.global_shards)
'''


class Server:
  """A notebook server that listens on a local port."""

  def __init__(self, port, token):
    self.port, self.token = port, token

  def request(self, method, path, body=None):
    request = urllib.request.Request(f'http://127.0.0.1:{self.port}{path}', method=method,
                                     data=None if body is None else json.dumps(body).encode(),
                                     headers={'Authorization': f'token {self.token}', 'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=30) as response:
      text = response.read()
    return json.loads(text) if text else None

  def answers(self):
    """Whether the server takes requests yet."""
    try:
      return bool(self.request('GET', '/api')['version'])
    except OSError:
      return False

  def execute(self, cells, timeout=120):
    """Runs cells in a kernel of their own; returns what each one printed. A cell that raises fails the test."""
    kernel = self.request('POST', '/api/kernels', {'name': 'python3'})['id']
    connection = websocket.create_connection(
        f'ws://127.0.0.1:{self.port}/api/kernels/{kernel}/channels?token={self.token}', timeout=timeout)
    try:
      return [self._execute(connection, cell, timeout) for cell in cells]
    finally:
      connection.close()
      self.request('DELETE', f'/api/kernels/{kernel}')

  @staticmethod
  def _execute(connection, code, timeout):
    message = {'header': {'msg_id': uuid.uuid4().hex, 'username': 'test', 'session': uuid.uuid4().hex,
                          'msg_type': 'execute_request', 'version': '5.3', 'date': ''},
               'parent_header': {}, 'metadata': {}, 'channel': 'shell',
               'content': {'code': code, 'silent': False, 'store_history': True, 'user_expressions': {},
                           'allow_stdin': False, 'stop_on_error': True}}
    connection.send(json.dumps(message))
    printed, deadline = '', time.monotonic() + timeout
    while time.monotonic() < deadline:
      reply = json.loads(connection.recv())
      if reply['parent_header'].get('msg_id') != message['header']['msg_id']:
        continue
      content = reply['content']
      if reply['msg_type'] == 'stream':
        printed += content['text']
      elif reply['msg_type'] == 'error':
        raise AssertionError('\n'.join([printed, *content['traceback']]))
      elif reply['msg_type'] == 'status' and content['execution_state'] == 'idle':
        return printed
    raise AssertionError(f'a cell took more than {timeout} s:\n{code}\n{printed}')


def token_from(log):
  """The token of the URL that a server prints when it is ready, or None."""
  match = re.search(r'http://127\.0\.0\.1:\d+/lab\?token=(\w+)', log)
  return match[1] if match else None
