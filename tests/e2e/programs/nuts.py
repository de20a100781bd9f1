"""NUTS in NumPyro, in double precision: a hierarchical regression with four chains, each on a device of its own."""
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

TOLERANCE = 1e-3  # rounding grows along the trajectories
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


def program(devices):
  del devices  # NumPyro takes the first ones
  mcmc = MCMC(NUTS(model, max_tree_depth=5), num_warmup=40, num_samples=20, num_chains=4, chain_method='parallel', progress_bar=False)
  mcmc.run(jax.random.key(0), *data(), extra_fields=('num_steps',))
  found = mcmc.get_samples(group_by_chain=True)
  slope = np.asarray(found['slope'])
  np.testing.assert_allclose(slope.mean((0, 1)), np.linspace(-1, 1, GROUPS), atol=0.25)
  return {'slope': slope, 'noise': np.asarray(found['noise']), 'steps': np.asarray(mcmc.get_extra_fields(group_by_chain=True)['num_steps'])}
