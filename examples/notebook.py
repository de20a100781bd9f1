"""An interactive session on a Pathways cluster of two equal slices: what a notebook's cells would hold, one after the other.

Run it with `pathways run -- python examples/notebook.py`. After each cell a check says what must have come out.
"""

# Cell 1: connect. `pathways run` has set JAX_PLATFORMS, JAX_BACKEND_TARGET and IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS.
import pathwaysutils
import jax

pathwaysutils.initialize()
print(jax.devices())

# Cell 2: the JAX API as usual, on any device.
import jax.numpy as jnp
from jax import lax
import numpy as np


def check(what, holds):
  if not holds:
    raise SystemExit(f'notebook: {what} does not hold')


sine = jax.jit(jnp.sin, device=jax.devices()[-1])(np.pi / 2.)
check('the sine of a right angle is one', abs(float(sine) - 1) < 1e-6)
check('it was computed on the last device', sine.devices() == {jax.devices()[-1]})

# Cell 3: pmap over all devices of all slices.
num_tpus = jax.device_count()
f = jax.pmap(lambda x: lax.psum(1, 'i'), 'i')
x = jnp.arange(num_tpus)
y = f(x)
print(y)
check('every device counted all devices', np.array_equal(y, np.full(num_tpus, num_tpus)))

# Cell 4: pmap over the devices of slice 0 only.
slice0_devices = [d for d in jax.devices() if d.slice_index == 0]
f = jax.pmap(lambda x: lax.psum(1, 'i'), 'i', devices=slice0_devices)
x = jnp.arange(len(slice0_devices))
y = f(x)
print(y)
print(y.global_shards)
check('the slices are equal', 2 * len(slice0_devices) == num_tpus)
check('every device counted those of its slice', np.array_equal(y, np.full(len(slice0_devices), len(slice0_devices))))
check('the shards are where the devices are', [s.device for s in y.global_shards] == slice0_devices)

# Cell 5: what slice 0 has made goes on to slice 1.
slice1_devices = [d for d in jax.devices() if d.slice_index == 1]
g = jax.pmap(lambda x: x + lax.axis_index('i'), 'i', devices=slice1_devices)
z = g(y)
print(z)
print(z.global_shards)
check('slice 1 added its own indices', np.array_equal(z, len(slice0_devices) + np.arange(len(slice1_devices))))
check('the result lies on slice 1', [s.device for s in z.global_shards] == slice1_devices)
print('notebook: all checks hold')
