"""Autoregressive sampling: the prompt fills a key/value cache, then each step donates the cache to the next.

Heads are spread over a slice's devices, the batch over both slices. Once as a Python loop, which reads each token when it is there,
and once as a loop inside one program, which stops when all sequences have ended.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

TOLERANCE = 1e-4
VOCABULARY, WIDTH, HEADS, HEAD, LAYERS, PROMPT, LENGTH, BATCH, END = 96, 32, 8, 8, 2, 6, 30, 4, 0


def initial():
  random = np.random.default_rng(1)
  matrix = lambda fan_in, *shape: random.normal(0, fan_in**-0.5, shape).astype(np.float32)
  return {'embedding': matrix(1, VOCABULARY, WIDTH), 'position': matrix(1, LENGTH, WIDTH), 'qkv': matrix(WIDTH, LAYERS, 3, WIDTH, HEADS, HEAD),
          'out': matrix(HEADS * HEAD, LAYERS, HEADS, HEAD, WIDTH), 'up': matrix(WIDTH, LAYERS, WIDTH, 64), 'down': matrix(64, LAYERS, 64, WIDTH),
          'output': matrix(WIDTH / 4, WIDTH, VOCABULARY)}


def logits_of(params, cache, tokens, position):
  """Of the last of `tokens` (batch x count), which stand at `position` and after; and the cache with their keys and values."""
  count = tokens.shape[1]
  norm = lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
  x = params['embedding'][tokens] + lax.dynamic_slice_in_dim(params['position'], position, count)
  seen = jnp.arange(LENGTH) <= position + jnp.arange(count)[:, None]

  def layer(x, of_layer):
    p, cache = of_layer
    q, k, v = jnp.einsum('btw,cwhd->cbthd', norm(x), p['qkv'])
    cache = lax.dynamic_update_slice(cache, jnp.stack([k, v]), (0, 0, position, 0, 0))
    weight = jnp.einsum('bqhd,bkhd->bhqk', q, cache[0]) / HEAD**0.5
    weight = jax.nn.softmax(jnp.where(seen, weight, -jnp.inf))
    x = x + jnp.einsum('bhqk,bkhd,hdw->bqw', weight, cache[1], p['out'])
    return x + jax.nn.gelu(norm(x) @ p['up']) @ p['down'], cache

  x, cache = lax.scan(layer, x, ({n: params[n] for n in ('qkv', 'out', 'up', 'down')}, cache))
  return norm(x[:, -1]) @ params['output'], cache


def sample(key, logits, position):
  """From the eight most likely tokens."""
  top, index = lax.top_k(logits, 8)
  choice = jax.random.categorical(jax.random.fold_in(key, position), top)
  return jnp.take_along_axis(index, choice[:, None], 1)


def program(devices):
  mesh = spmd.mesh_of(devices, (2, 8), ('batch', 'heads'))
  sharding = lambda *spec: NamedSharding(mesh, P(*spec))
  specs = {'qkv': P(None, None, None, 'heads'), 'out': P(None, 'heads'), 'up': P(None, None, 'heads'), 'down': P(None, 'heads')}
  params = {name: jax.device_put(x, NamedSharding(mesh, specs.get(name, P()))) for name, x in initial().items()}
  cache_sharding = sharding(None, None, 'batch', None, 'heads')
  key = jax.device_put(jax.random.key(7), sharding())
  prompt = jax.device_put(np.random.default_rng(0).integers(1, VOCABULARY, (BATCH, PROMPT)).astype(np.int32), sharding('batch'))

  def step(params, cache, tokens, position, key):
    logits, cache = logits_of(params, cache, tokens, position)
    return sample(key, logits, position), logits, lax.with_sharding_constraint(cache, cache_sharding)

  # Python's loop.
  one = jax.jit(step, donate_argnums=1)
  empty = jax.jit(lambda: jnp.zeros((LAYERS, 2, BATCH, LENGTH, HEADS, HEAD)), out_shardings=cache_sharding)
  cache, token, position, said, scores = empty(), prompt, 0, [], []
  while position < LENGTH - 1:
    donated = cache
    count = token.shape[1]
    token, logits, cache = one(params, donated, token, position, key)
    assert donated.is_deleted(), 'the cache was donated'
    position += count
    said.append(np.asarray(token))
    scores.append(logits)
  try:
    np.asarray(donated)
  except RuntimeError as error:
    assert 'deleted' in str(error), error
  else:
    raise AssertionError('a donated cache could be read')
  said = np.concatenate(said, 1)

  # A program's loop.
  @functools.partial(jax.jit, donate_argnums=1)
  def generate(params, cache, prompt, key):
    token, _, cache = step(params, cache, prompt, 0, key)
    tokens = jnp.zeros((BATCH, LENGTH), jnp.int32).at[:, :1].set(token)

    def more(carried):
      position, token, tokens, cache, ended = carried
      token, _, cache = step(params, cache, token, position, key)
      token = jnp.where(ended[:, None], END, token)
      tokens = lax.dynamic_update_slice(tokens, token, (0, position - PROMPT + 1))
      return position + 1, token, tokens, cache, ended | (token[:, 0] == END)

    start = (PROMPT, token, tokens, cache, token[:, 0] == END)
    position, _, tokens, cache, ended = lax.while_loop(lambda c: (c[0] < LENGTH - 1) & ~c[4].all(), more, start)
    return tokens, position, ended, cache

  tokens, position, ended, _ = generate(params, empty(), prompt, key)
  # Where a sequence has ended, Python's loop went on: that part is not compared.
  alive = np.cumsum(said == END, 1) - (said == END) == 0
  alive = alive & (np.arange(said.shape[1]) <= int(position) - PROMPT)
  np.testing.assert_array_equal(np.asarray(tokens)[:, :said.shape[1]] * alive, said * alive)
  assert len(np.unique(said)) > 10, f'always the same: {said}'
  return {'tokens': said, 'logits': np.stack([np.asarray(x) for x in scores]), 'position': np.asarray(position), 'ended': np.asarray(ended)}
