"""Writes the modules of cost_analysis_test, NAME.hlo (a serialized HloModuleProto), and what XLA says of each, NAME.costs.

Run by hand when programs are added:  python generate.py    (needs jax; any machine, no accelerator)
"""

import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

jax.config.update("jax_traceback_in_locations_limit", 0)  # no folder of this machine in the modules

mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
PROGRAMS = {}


def f32(*shape, spec=None):
  return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=None if spec is None else NamedSharding(mesh, spec))


def i32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def program(*args):
  def register(f):
    PROGRAMS[f.__name__] = (f, args)
    return f

  return register


@program(f32(64, 32), f32(32, 16))
def layer(a, b):
  return jnp.sin(a @ b).sum()


@program(f32(64, 32, spec=P("x", None)), f32(32, 16))
def partitioned(a, b):
  return jnp.tanh(a @ b).sum()


@program(f32(4, 8, 16), f32(4, 16, 8))
def batched_dot(a, b):
  return jnp.einsum("bik,bkj->bij", a, b) / 3


@program(f32(2, 12, 12, 8), f32(3, 3, 4, 16))
def convolution(x, w):
  return lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2)


@program(f32(16, 16))
def loop(x):
  return lax.fori_loop(0, 10, lambda i, v: v @ v + i, x)


@program(f32(16, 16), i32())
def branches(x, i):
  return lax.switch(i, [lambda v: v @ v, jnp.exp, lambda v: v * 2 + v], x)


@program(f32(100, 8), i32(5))
def gather(x, i):
  return x[i] * 2


@program(f32(100, 8), i32(5), f32(5, 8))
def scatter(x, i, u):
  return x.at[i].add(u)


@program(f32(100, 8), i32(), f32(1, 8))
def update_slice(x, i, u):
  return lax.dynamic_update_slice(x, u, (i, 0)), lax.dynamic_slice(x, (i, 0), (3, 8)) + 1


@program(f32(64, 10))
def sort(x):
  return jnp.sort(x, axis=0), jnp.argmax(x, axis=1)


@program(f32(2, 16, 16, 3))
def pool(x):
  return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


@program(f32(8, 16))
def fourier(x):
  return jnp.abs(jnp.fft.rfft(x))


@program(f32(32, 32))
def normalized(x):
  y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
  return jax.nn.softmax(y), jnp.concatenate([x, y]), x.T.astype(jnp.bfloat16)


def main():
  here = pathlib.Path(__file__).parent
  for name, (function, args) in PROGRAMS.items():
    compiled = jax.jit(function).lower(*args).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    (here / f"{name}.hlo").write_bytes(module.as_serialized_hlo_module_proto())
    costs = compiled.cost_analysis()
    (here / f"{name}.costs").write_text("".join(f"{value:.9g}\t{key}\n" for key, value in sorted(costs.items())))


if __name__ == "__main__":
  main()
