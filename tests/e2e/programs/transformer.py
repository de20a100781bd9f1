"""A decoder-only transformer over two slices: FSDP over both of them, tensor parallelism inside a host's chips.

Rotary positions, grouped keys, a gated MLP, layers in a scan with rematerialization, gradients accumulated over microbatches, AdamW
with its state sharded as the parameters.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

TOLERANCE = 2e-3
VOCABULARY, WIDTH, HIDDEN, HEADS, KEY_HEADS, HEAD, LAYERS = 64, 32, 64, 4, 2, 8, 2
BATCH, MICROBATCHES, LENGTH, STEPS = 32, 2, 12, 6

# Each matrix is cut over all fsdp devices in one dimension and over the tensor devices in the other; `None` is the layer.
SPECS = {
    'embedding': P('fsdp', 'tensor'),
    'layers': {'query': P(None, 'fsdp', 'tensor'), 'key': P(None, 'fsdp', 'tensor'), 'value': P(None, 'fsdp', 'tensor'), 'out': P(None, 'tensor', 'fsdp'),
               'gate': P(None, 'fsdp', 'tensor'), 'up': P(None, 'fsdp', 'tensor'), 'down': P(None, 'tensor', 'fsdp'),
               'attention norm': P(None, None), 'mlp norm': P(None, None)},
    'norm': P(None),
    'output': P('fsdp', 'tensor'),
}


def initial():
  random = np.random.default_rng(0)
  matrix = lambda *shape: random.normal(0, shape[-2]**-0.5, shape).astype(np.float32)
  layers = {'query': (WIDTH, HEADS * HEAD), 'key': (WIDTH, KEY_HEADS * HEAD), 'value': (WIDTH, KEY_HEADS * HEAD), 'out': (HEADS * HEAD, WIDTH),
            'gate': (WIDTH, HIDDEN), 'up': (WIDTH, HIDDEN), 'down': (HIDDEN, WIDTH)}
  layers = {name: matrix(LAYERS, *shape) for name, shape in layers.items()}
  layers |= {name: np.ones((LAYERS, WIDTH), np.float32) for name in ('attention norm', 'mlp norm')}
  return {'embedding': matrix(1, VOCABULARY, WIDTH)[0] * 8, 'layers': layers, 'norm': np.ones(WIDTH, np.float32), 'output': matrix(WIDTH, VOCABULARY)}


def norm(x, scale):
  return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def rotated(x):
  angle = jnp.arange(x.shape[1])[:, None] / 10000**(jnp.arange(HEAD // 2) / (HEAD // 2))
  sin, cos = jnp.sin(angle)[None, :, None], jnp.cos(angle)[None, :, None]
  a, b = jnp.split(x, 2, -1)
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(p, x):
  heads = lambda name, count: (x @ p[name]).reshape(*x.shape[:2], count, HEAD)
  y = jax.nn.dot_product_attention(rotated(heads('query', HEADS)), rotated(heads('key', KEY_HEADS)), heads('value', KEY_HEADS), is_causal=True)
  return y.reshape(*x.shape[:2], -1) @ p['out']


def mlp(p, x):
  return (jax.nn.silu(x @ p['gate']) * (x @ p['up'])) @ p['down']


def loss_of(mesh, params, tokens):
  sharded = lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh, P('fsdp', None, 'tensor')))

  @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
  def layer(x, p):
    x = sharded(x + attention(p, norm(x, p['attention norm'])))
    return sharded(x + mlp(p, norm(x, p['mlp norm']))), None

  x, _ = lax.scan(layer, sharded(params['embedding'][tokens[:, :-1]]), params['layers'])
  logits = norm(x, params['norm']) @ params['output']
  return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def train(mesh):
  shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), SPECS, is_leaf=lambda x: isinstance(x, P))
  optimizer = optax.adamw(1e-2)
  params = jax.device_put(initial(), shardings)
  state = jax.jit(optimizer.init)(params)
  state = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, P())) if x.ndim == 0 else x, state)

  @functools.partial(jax.jit, donate_argnums=(0, 1))
  def step(params, state, tokens):

    def accumulate(total, micro):
      value, gradient = jax.value_and_grad(functools.partial(loss_of, mesh))(params, micro)
      return jax.tree.map(jnp.add, total, (value, gradient)), None

    zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    (value, gradient), _ = lax.scan(accumulate, zero, tokens)
    gradient = jax.tree.map(lambda g, s: lax.with_sharding_constraint(g / MICROBATCHES, s), gradient, shardings)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value / MICROBATCHES, optax.global_norm(gradient)

  random = np.random.default_rng(3)
  losses, norms = [], []
  for _ in range(STEPS):
    start = random.integers(0, VOCABULARY, (MICROBATCHES, BATCH // MICROBATCHES, 1))
    tokens = ((start + 7 * np.arange(LENGTH + 1)) % VOCABULARY).astype(np.int32)  # the next token follows from this one
    params, state, loss, gradient_norm = step(params, state, jax.device_put(tokens, NamedSharding(mesh, P(None, 'fsdp'))))
    losses.append(loss)
    norms.append(gradient_norm)
  assert params['layers']['up'].sharding.shard_shape((LAYERS, WIDTH, HIDDEN)) == (LAYERS, WIDTH // 8, HIDDEN // 2)
  losses = np.array([float(x) for x in losses])
  assert losses[-1] < 0.9 * losses[0], f'it has not learnt: {losses}'
  return {'losses': losses, 'gradient norms': np.array([float(x) for x in norms]), 'up': np.asarray(params['layers']['up'])}


def program(devices):
  mesh = spmd.mesh_of(devices, (8, 2), ('fsdp', 'tensor'))
  return train(mesh)
