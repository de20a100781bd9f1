"""Pipeline parallelism with stages on different slices, in the two ways in which it is written.

One program: the stages are a mesh axis (two on each slice) and microbatches go on by ppermute, forwards and, in the gradient,
backwards. Many programs: each slice has its own jitted functions, and a controller's loop moves activations and their gradients
between the slices by device_put, with several microbatches under way at once.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

TOLERANCE = 2e-4
WIDTH, STAGES, MICROBATCHES, MICROBATCH, STEPS, RATE = 16, 4, 6, 8, 5, 0.3


def stage(p, x):
  return x + jnp.tanh(x @ p['w'] + p['b'])


def initial():
  random = np.random.default_rng(0)
  return {'w': random.normal(0, WIDTH**-0.5, (STAGES, WIDTH, WIDTH)).astype(np.float32), 'b': np.zeros((STAGES, WIDTH), np.float32)}


def batches():
  random = np.random.default_rng(1)
  x = random.normal(0, 1, (MICROBATCHES, MICROBATCH, WIDTH)).astype(np.float32)
  return x, np.sin(2 * x[..., ::-1]).astype(np.float32)


def one_program(slices):
  """A mesh of 4 stages by 4 devices that share each microbatch."""
  mesh = spmd.mesh_of([d for s in slices for d in s], (STAGES, 4), ('stage', 'data'))
  onwards = [(k, k + 1) for k in range(STAGES - 1)]

  @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P('stage'), P(None, 'data'), P(None, 'data')), out_specs=P(), check_vma=False)
  def loss_of(params, x, y):
    params = jax.tree.map(lambda p: p[0], params)
    index = lax.axis_index('stage')

    def tick(carried, t):
      arrived, loss = carried
      out = stage(params, jnp.where(index == 0, x[jnp.minimum(t, MICROBATCHES - 1)], arrived))
      done = t - (STAGES - 1)  # the microbatch that leaves the last stage now
      error = jnp.square(out - y[jnp.maximum(done, 0)]).mean()
      loss = loss + jnp.where((index == STAGES - 1) & (done >= 0), error, 0)
      return (lax.ppermute(out, 'stage', onwards), loss), None

    (_, loss), _ = lax.scan(tick, (jnp.zeros_like(x[0]), jnp.float32(0)), jnp.arange(MICROBATCHES + STAGES - 1))
    return lax.pmean(lax.psum(loss, 'stage'), 'data') / MICROBATCHES

  @functools.partial(jax.jit, donate_argnums=0)
  def step(params, x, y):
    value, gradient = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradient), value

  params = jax.device_put(initial(), NamedSharding(mesh, P('stage')))
  x, y = jax.device_put(batches(), NamedSharding(mesh, P(None, 'data')))
  losses = []
  for _ in range(STEPS):
    params, loss = step(params, x, y)
    losses.append(loss)
  return {'losses': np.array([float(v) for v in losses]), 'w': np.asarray(params['w'])}


def many_programs(slices):
  """Slice 0 has stages 0 and 1, slice 1 has 2 and 3; nothing but activations and their gradients crosses."""
  meshes = [spmd.mesh_of(s, (8,), ('data',)) for s in slices]
  everywhere = [NamedSharding(m, P()) for m in meshes]
  shared_out = [NamedSharding(m, P('data')) for m in meshes]
  half = lambda params, x: stage(jax.tree.map(lambda p: p[1], params), stage(jax.tree.map(lambda p: p[0], params), x))

  forward = jax.jit(half)

  @jax.jit
  def last(params, x, y):
    loss = lambda params, x: jnp.square(half(params, x) - y).mean() / MICROBATCHES
    return jax.value_and_grad(loss, argnums=(0, 1))(params, x)

  @jax.jit
  def backward(params, x, gradient):
    return jax.vjp(lambda params: half(params, x), params)[1](gradient)[0]

  add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
  update = jax.jit(lambda p, g: jax.tree.map(lambda p, g: p - RATE * g, p, g), donate_argnums=(0, 1))

  params = [jax.device_put(jax.tree.map(lambda p: p[2 * k:2 * k + 2], initial()), everywhere[k]) for k in range(2)]
  x, y = batches()
  x = [jax.device_put(m, shared_out[0]) for m in x]
  y = [jax.device_put(m, shared_out[1]) for m in y]
  losses = []
  for _ in range(STEPS):
    gradients, values = [None, None], []
    for k in range(MICROBATCHES):
      arrived = jax.device_put(forward(params[0], x[k]), shared_out[1])
      value, (gradient, back) = last(params[1], arrived, y[k])
      first = backward(params[0], x[k], jax.device_put(back, shared_out[0]))
      for s, g in enumerate((first, gradient)):
        gradients[s] = g if gradients[s] is None else add(gradients[s], g)
      values.append(value)
    params = [update(p, g) for p, g in zip(params, gradients)]
    losses.append(values)
  assert params[0]['w'].devices() == set(slices[0]) and params[1]['w'].devices() == set(slices[1])
  return {'losses': np.array([sum(float(v) for v in values) for values in losses]), 'w': np.concatenate([np.asarray(p['w']) for p in params])}


def program(devices):
  slices = spmd.by_slice(devices)
  one, many = one_program(slices), many_programs(slices)
  assert one['losses'][-1] < 0.8 * one['losses'][0], f'it has not learnt: {one["losses"]}'
  for name in one:
    np.testing.assert_allclose(one[name], many[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=f'{name}: the two ways differ')
  return {'one program': one, 'many programs': many}
