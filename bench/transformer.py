"""A small decoder in plain JAX: data parallel over mesh axis 'data', tensor parallel over 'model'."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, LENGTH, BATCH = 2, 384, 8, 1536, 1024, 64, 24
RATE = 0.05

SPECS = {
    'embedding': P(None, 'model'),
    'output': P(None, 'model'),
    'layers': [{'qkv': P(None, None, 'model', None), 'proj': P('model', None, None), 'up': P(None, 'model'),
                'down': P('model', None)}] * LAYERS,
}
TOKENS = P('data', None)


def initial_parameters():
  """As numpy arrays, the same in every process."""
  rng = np.random.default_rng(1)

  def normal(*shape):
    return (rng.standard_normal(shape) / np.sqrt(WIDTH)).astype(np.float32)

  layer = lambda: {'qkv': normal(3, WIDTH, HEADS, WIDTH // HEADS), 'proj': normal(HEADS, WIDTH // HEADS, WIDTH),
                   'up': normal(WIDTH, HIDDEN), 'down': normal(HIDDEN, WIDTH)}
  return {'embedding': normal(VOCABULARY, WIDTH), 'output': normal(WIDTH, VOCABULARY), 'layers': [layer() for _ in range(LAYERS)]}


def tokens():
  return np.random.default_rng(2).integers(0, VOCABULARY, (BATCH, LENGTH + 1), dtype=np.int32)


def _norm(x):
  return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _attention(p, x):
  q, k, v = jnp.einsum('btd,cdhe->cbthe', x, p['qkv'])
  scores = jnp.einsum('bthe,bshe->bhts', q, k) / np.sqrt(WIDTH // HEADS)
  weights = jax.nn.softmax(jnp.where(np.tri(LENGTH, dtype=bool), scores, -1e9))
  return jnp.einsum('bhts,bshe,hed->btd', weights, v, p['proj'])


def loss(parameters, batch):
  x = parameters['embedding'][batch[:, :-1]]
  for p in parameters['layers']:
    x = x + _attention(p, _norm(x))
    x = x + jax.nn.gelu(_norm(x) @ p['up']) @ p['down']
  logits = _norm(x) @ parameters['output']
  return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch[:, 1:, None], -1).mean()


def step(parameters, batch):
  """One step of gradient descent: new parameters and the loss before it."""
  value, gradient = jax.value_and_grad(loss)(parameters, batch)
  return jax.tree.map(lambda p, g: p - RATE * g, parameters, gradient), value
