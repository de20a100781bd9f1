"""Flax and Optax: two training loops over 16 devices that share the batch.

With linen: convolutions, batch norm and dropout, gradient clipping, a warm-up schedule, the old state donated to each step. With
nnx: modules that carry their state, the same by reference.
"""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.training import train_state
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

TOLERANCE = 1e-3
CLASSES, BATCH, STEPS = 4, 64, 20


def pictures(count, seed=0):
  """Noisy pictures of 8x8: the class says in which direction a wave runs."""
  random = np.random.default_rng(seed)
  label = random.integers(0, CLASSES, count)
  row, column = np.mgrid[0:8, 0:8]
  angle = label[:, None, None] * np.pi / CLASSES
  wave = np.sin(1.2 * (row * np.cos(angle) + column * np.sin(angle)) + random.uniform(0, 6, (count, 1, 1)))
  return (wave + random.normal(0, 0.3, wave.shape)).astype(np.float32)[..., None], label.astype(np.int32)


class Convolutions(linen.Module):

  @linen.compact
  def __call__(self, x, train):
    for width in (4, 8):
      x = linen.Conv(width, (3, 3), use_bias=False)(x)
      x = linen.BatchNorm(use_running_average=not train, momentum=0.8)(x)
      x = linen.avg_pool(linen.relu(x), (2, 2), strides=(2, 2))
    x = linen.Dropout(0.2, deterministic=not train)(x.reshape(len(x), -1))
    return linen.Dense(CLASSES)(x)


class TrainState(train_state.TrainState):
  batch_stats: dict
  key: jax.Array


def cross_entropy(logits, label):
  return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()


def linen_step(state, picture, label):

  def loss_of(params):
    logits, changed = state.apply_fn({'params': params, 'batch_stats': state.batch_stats}, picture, train=True, mutable=['batch_stats'],
                                     rngs={'dropout': jax.random.fold_in(state.key, state.step)})
    return cross_entropy(logits, label), changed['batch_stats']

  (loss, batch_stats), gradient = jax.value_and_grad(loss_of, has_aux=True)(state.params)
  return state.apply_gradients(grads=gradient, batch_stats=batch_stats), {'loss': loss, 'gradient norm': optax.global_norm(gradient)}


def linen_training(mesh):
  model = Convolutions()
  everywhere, shared_out = NamedSharding(mesh, P()), NamedSharding(mesh, P('batch'))
  schedule = optax.warmup_cosine_decay_schedule(0, 5e-2, 3, STEPS)
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))

  def create(key):
    variables = model.init({'params': key}, jnp.zeros((1, 8, 8, 1)), train=False)
    return TrainState.create(apply_fn=model.apply, params=variables['params'], tx=optimizer, batch_stats=variables['batch_stats'], key=key)

  state = jax.jit(create, out_shardings=everywhere)(jax.random.key(0))
  step = jax.jit(linen_step, donate_argnums=0, out_shardings=(everywhere, everywhere))
  picture, label = pictures(BATCH * STEPS)
  history = []
  for k in range(STEPS):
    batch = jax.device_put((picture[k * BATCH:][:BATCH], label[k * BATCH:][:BATCH]), shared_out)
    before, (state, metrics) = state, step(state, *batch)
    assert all(x.is_deleted() for x in jax.tree.leaves(before.params)), 'the old parameters were donated'
    history.append(metrics)
  history = {name: np.array([float(m[name]) for m in history]) for name in history[0]}
  test, truth = jax.device_put(pictures(256, seed=1), shared_out)
  logits = jax.jit(lambda s, x: s.apply_fn({'params': s.params, 'batch_stats': s.batch_stats}, x, train=False))(state, test)
  accuracy = float((logits.argmax(-1) == truth).mean())
  assert accuracy > 0.7, f'it has not learnt: {accuracy}, {history}'
  return {**history, 'logits': np.asarray(logits), 'batch stats': np.concatenate([np.ravel(x) for x in jax.tree.leaves(state.batch_stats)])}


class Perceptron(nnx.Module):

  def __init__(self, rngs):
    self.hidden = nnx.Linear(64, 32, rngs=rngs)
    self.norm = nnx.LayerNorm(32, rngs=rngs)
    self.dropout = nnx.Dropout(0.1, rngs=rngs)
    self.out = nnx.Linear(32, CLASSES, rngs=rngs)

  def __call__(self, x):
    return self.out(self.dropout(nnx.gelu(self.norm(self.hidden(x.reshape(len(x), -1))))))


def nnx_training(mesh):
  model = Perceptron(nnx.Rngs(0))
  optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
  nnx.update((model, optimizer), jax.device_put(nnx.state((model, optimizer)), NamedSharding(mesh, P())))

  @nnx.jit
  def step(model, optimizer, picture, label):
    loss, gradient = nnx.value_and_grad(lambda m: cross_entropy(m(picture), label))(model)
    optimizer.update(model, gradient)
    return loss

  picture, label = pictures(BATCH * STEPS)
  losses = []
  for k in range(STEPS):
    batch = jax.device_put((picture[k * BATCH:][:BATCH], label[k * BATCH:][:BATCH]), NamedSharding(mesh, P('batch')))
    losses.append(step(model, optimizer, *batch))
  losses = np.array([float(x) for x in losses])
  assert losses[-5:].mean() < losses[0] / 2, f'it has not learnt: {losses}'
  return {'losses': losses, 'output bias': np.asarray(model.out.bias[...])}


def program(devices):
  mesh = spmd.mesh_of(devices, (16,), ('batch',))
  return {'linen': linen_training(mesh), 'nnx': nnx_training(mesh)}
