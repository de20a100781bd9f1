"""Equinox and Diffrax: an adaptive solve with its gradient, a stiff one, which needs LU, a stochastic one, and a neural ODE that is
trained with a batch of trajectories spread over both slices.

Equinox raises errors from inside a program by a host callback unless it is told to give NaN instead.
"""
import os

os.environ['EQX_ON_ERROR'] = 'nan'

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

TOLERANCE = 1e-3


def adaptive():
  """Prey and predators; how the end depends on the beginning."""

  def end(y0, rates):
    a, b, c, d = rates
    term = diffrax.ODETerm(lambda t, y, args: jnp.stack([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]]))
    found = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0, 8, 0.1, y0, saveat=diffrax.SaveAt(ts=jnp.linspace(0, 8, 20)),
                                stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6))
    return found.ys[-1].sum(), (found.ys, found.stats['num_steps'])

  gradient, (ys, steps) = eqx.filter_jit(jax.grad(end, has_aux=True))(jnp.array([2.0, 1.0]), (1.1, 0.4, 0.1, 0.4))
  return {'ys': np.asarray(ys), 'gradient': np.asarray(gradient), 'steps': np.asarray(steps)}


def stiff():
  """Robertson's reaction, over nine decades."""

  def rates(t, y, args):
    del t, args
    a, b, c = y
    slow, fast, back = 0.04 * a, 3e7 * b * b, 1e4 * b * c
    return jnp.stack([back - slow, slow - back - fast, fast])

  with jax.enable_x64(True):
    found = eqx.filter_jit(lambda y: diffrax.diffeqsolve(
        diffrax.ODETerm(rates), diffrax.Kvaerno5(), 0.0, 1e4, 1e-4, y, saveat=diffrax.SaveAt(ts=jnp.array([1.0, 1e2, 1e4])),
        stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10)))(jnp.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(found.ys.sum(1), 1, rtol=1e-6)
    return {'ys': np.asarray(found.ys)}


def stochastic():
  """Many paths of an Ornstein-Uhlenbeck process."""

  def path(key):
    noise = diffrax.VirtualBrownianTree(0, 1, tol=1e-2, shape=(), key=key)
    terms = diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, args: -2 * y), diffrax.ControlTerm(lambda t, y, args: 0.5, noise))
    return diffrax.diffeqsolve(terms, diffrax.Euler(), 0, 1, 0.05, 1.0).ys[0]

  return {'ends': np.asarray(eqx.filter_jit(jax.vmap(path))(jax.random.split(jax.random.key(3), 32)))}


class Field(eqx.Module):
  mlp: eqx.nn.MLP

  def __call__(self, t, y, args):
    del t, args
    return self.mlp(y)


def neural(mesh):
  """Learns a spiral."""
  times = jnp.linspace(0, 1, 8)
  start = np.random.default_rng(0).normal(0, 1, (32, 2)).astype(np.float32)
  turn = np.exp(-0.3 * np.asarray(times))[:, None, None] * np.array(
      [[[np.cos(3 * t), -np.sin(3 * t)], [np.sin(3 * t), np.cos(3 * t)]] for t in np.asarray(times)])
  truth = np.einsum('tij,bj->bti', turn, start).astype(np.float32)
  start, truth = jax.device_put((start, truth), NamedSharding(mesh, P('batch')))
  model = Field(eqx.nn.MLP(2, 2, 16, 1, activation=jnp.tanh, key=jax.random.key(5)))
  model = eqx.filter_shard(model, NamedSharding(mesh, P()))
  optimizer = optax.adam(2e-2)
  state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

  def loss_of(model, start, truth):

    def path(y0):
      return diffrax.diffeqsolve(diffrax.ODETerm(model), diffrax.Heun(), 0, 1, 1 / 14, y0, saveat=diffrax.SaveAt(ts=times)).ys

    return jnp.square(jax.vmap(path)(start) - truth).mean()

  @eqx.filter_jit(donate='all-except-first')
  def step(batch, model, state):
    value, gradient = eqx.filter_value_and_grad(loss_of)(model, *batch)
    updates, state = optimizer.update(gradient, state)
    return eqx.apply_updates(model, updates), state, value

  losses = []
  for _ in range(25):
    model, state, value = step((start, truth), model, state)
    losses.append(value)
  losses = np.array([float(v) for v in losses])
  assert losses[-1] < losses[0] / 2, f'it has not learnt: {losses}'
  return {'losses': losses}


def program(devices):
  return {'adaptive': adaptive(), 'stiff': stiff(), 'stochastic': stochastic(), 'neural': neural(spmd.mesh_of(devices, (16,), ('batch',)))}
