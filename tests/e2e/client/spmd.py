"""Runs one function on every device of a mesh, with a block of its own for each, as the collective tests need it.

Blocks are laid out as [*mesh shape, *block shape] in numpy, on the way in and on the way out, so that a reference is plain indexing.
"""
import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def not_on_cpu(reason):
  """Skips a test where JAX's own CPU backend is at fault."""
  return pytest.mark.skipif(jax.config.jax_platforms == 'cpu', reason=reason)


def by_slice(devices):
  """The devices grouped by slice; a backend without slices (JAX's own CPU) is cut into two halves."""
  index = [getattr(d, 'slice_index', None) for d in devices]
  if index[0] is None:
    half = len(devices) // 2
    return [list(devices[:half]), list(devices[half:])]
  return [[d for d, i in zip(devices, index) if i == s] for s in sorted(set(index))]


def mesh_of(devices, shape, names):
  return Mesh(np.array(devices, dtype=object).reshape(shape), names)


def put(x, mesh):
  """One block of `x` on each device of `mesh`."""
  return jax.device_put(x, NamedSharding(mesh, P(*mesh.axis_names)))


def run(f, mesh, *arrays, wrap=jax.jit):
  """Runs `f(*blocks)` on every device of `mesh`; returns the blocks of its result (any pytree of them) as numpy."""
  rank = len(mesh.axis_names)
  spec = P(*mesh.axis_names)

  def body(*blocks):
    out = f(*(b.reshape(b.shape[rank:]) for b in blocks))
    return jax.tree.map(lambda o: o.reshape((1,) * rank + o.shape), out)

  mapped = jax.shard_map(body, mesh=mesh, in_specs=(spec,) * len(arrays), out_specs=spec, check_vma=False)
  return jax.tree.map(np.asarray, wrap(mapped)(*(put(a, mesh) for a in arrays)))


def integers(seed, shape, low=-8, high=9, dtype=np.float32):
  """Whole numbers, so that their sums are exact in every float type in use and results can be compared bit by bit."""
  return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
