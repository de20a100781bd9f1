"""NUTS in NumPyro, in double precision: a hierarchical regression whose chains run each on its own device, and at once with the
data spread over a slice."""
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.sharding import NamedSharding, PartitionSpec as P
from numpyro.infer import MCMC, NUTS

from client import spmd

TOLERANCE = 1e-5  # rounding grows along a trajectory
CONFIG = {'jax_enable_x64': True}
GROUPS, POINTS = 4, 64


def data():
  random = np.random.default_rng(0)
  group = random.integers(0, GROUPS, POINTS)
  x = random.normal(0, 1, POINTS)
  y = random.normal(0.5 + np.linspace(-1, 1, GROUPS)[group] * x, 0.3)
  return group, x, y


def model(group, x, y):
  mean = numpyro.sample('mean', dist.Normal(0, 1))
  spread = numpyro.sample('spread', dist.HalfNormal(1))
  intercept = numpyro.sample('intercept', dist.Normal(0, 1))
  noise = numpyro.sample('noise', dist.Exponential(1))
  with numpyro.plate('groups', GROUPS):
    offset = numpyro.sample('offset', dist.Normal(0, 1))
  slope = numpyro.deterministic('slope', mean + spread * offset)
  numpyro.sample('y', dist.Normal(intercept + slope[group] * x, noise), obs=y)


def samples(how, arguments, chains=4, draws=40):
  mcmc = MCMC(NUTS(model, max_tree_depth=5), num_warmup=60, num_samples=draws, num_chains=chains, chain_method=how, progress_bar=False)
  mcmc.run(jax.random.key(0), *arguments, extra_fields=('num_steps',))
  found = mcmc.get_samples(group_by_chain=True)
  np.testing.assert_allclose(found['slope'].mean((0, 1)), np.linspace(-1, 1, GROUPS), atol=0.25)
  return {'slope': np.asarray(found['slope']), 'noise': np.asarray(found['noise']),
          'steps': np.asarray(mcmc.get_extra_fields(group_by_chain=True)['num_steps'])}


def program(devices):
  arguments = data()
  mesh = spmd.mesh_of(devices[8:], (8,), ('points',))
  spread = jax.device_put(arguments, NamedSharding(mesh, P('points')))
  return {'parallel': samples('parallel', arguments), 'spread data': samples('vectorized', spread, chains=2, draws=20)}
