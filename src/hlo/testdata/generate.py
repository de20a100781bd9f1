"""Writes the programs of rewrite_collectives_test: what stock JAX lowers for platform tpu, as portable artifacts.

Run by hand when programs are added:  python generate.py    (needs jax; any machine, no accelerator)
Each program is for four devices, a 2x2 mesh with axes x and y. Beside NAME.mlirbc stands NAME.golden: what each device
gets and should give, computed by JAX on four CPU devices. One array a line:
  input|output INDEX DEVICE XLA_TYPE DIMS(comma-separated, "-" for a scalar) HEX_BYTES
"""

import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.sharding import NamedSharding, PartitionSpec as P

jax.config.update("jax_include_full_tracebacks_in_locations", False)
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")  # no folder of this machine in locations
jax.config.update("jax_enable_x64", True)

mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
BOTH = ("x", "y")
PROGRAMS = {}


def program(*args, in_specs, out_specs):
  """Registers a function of per-device values."""

  def wrap(f):
    mapped = jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    shardings = [jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs) for specs in (in_specs, out_specs)]
    PROGRAMS[f.__name__] = (jax.jit(mapped, in_shardings=shardings[0], out_shardings=shardings[1]), args)
    return f

  return wrap


def f32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)


ALL = P(BOTH)
# A custom call to JAX, an instruction to XLA.
UNCHECKED = [export.DisabledSafetyCheck.custom_call("ragged_all_to_all")]


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def psum_all(v):
  return lax.psum(v, BOTH)


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def psum_x(v):
  return lax.psum(v, "x")


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def psum_y(v):
  return lax.psum(v, "y")


@program(f32(4, 8), in_specs=(ALL,), out_specs=(ALL, ALL))
def pmax_pmin(v):
  return lax.pmax(v, BOTH), lax.pmin(v, "y")


@program(f32(4, 8), f32(4, 3), in_specs=(ALL, ALL), out_specs=(ALL, ALL))
def psum_variadic(v, w):
  return lax.psum((v, w), BOTH)


@program(
    jax.ShapeDtypeStruct((4, 8), jnp.bfloat16),
    jax.ShapeDtypeStruct((4, 8), jnp.float16),
    jax.ShapeDtypeStruct((4, 8), jnp.int8),
    jax.ShapeDtypeStruct((4, 8), jnp.complex64),
    jax.ShapeDtypeStruct((4, 8), jnp.float64),
    in_specs=(ALL,) * 5,
    out_specs=(ALL,) * 5,
)
def psum_types(*vs):
  return tuple(lax.psum(v, BOTH) for v in vs)


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def all_gather_x(v):
  return lax.all_gather(v, "x", axis=1, tiled=True)


@program(f32(16, 8), in_specs=(ALL,), out_specs=ALL)
def psum_scatter_all(v):
  return lax.psum_scatter(v, BOTH, scatter_dimension=0, tiled=True)


@program(f32(16, 8), in_specs=(ALL,), out_specs=ALL)
def all_to_all_all(v):
  return lax.all_to_all(v, BOTH, split_axis=0, concat_axis=1, tiled=True)


@program(f32(8, 2, 3), in_specs=(ALL,), out_specs=ALL)
def all_to_all_y(v):
  return lax.all_to_all(v, "y", split_axis=1, concat_axis=2, tiled=True)


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def ppermute_x(v):
  return lax.ppermute(v, "x", [(0, 1)])


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def ppermute_ring(v):
  return lax.ppermute(v, BOTH, [(i, (i + 1) % 4) for i in range(4)])


@program(jax.ShapeDtypeStruct((4, 8), jnp.int4), in_specs=(ALL,), out_specs=(ALL, ALL))
def int4_types(v):
  return lax.ppermute(v, "x", [(0, 1), (1, 0)]), lax.all_gather(v, "y", axis=0, tiled=True)


@program(f32(4, 0), in_specs=(ALL,), out_specs=ALL)
def psum_empty(v):
  return lax.psum(v, BOTH)


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def psum_in_loop(v):
  return lax.fori_loop(0, 3, lambda _, c: lax.psum(c, "x") * 0.5 + lax.ppermute(c, "y", [(0, 1), (1, 0)]), v)


@program(f32(4, 8), in_specs=(ALL,), out_specs=ALL)
def psum_in_cond(v):
  return lax.cond(lax.psum(v[0, 0], BOTH) > 0, lambda c: lax.psum(c, BOTH), lambda c: c, v)


@program(
    f32(32),
    f32(32),
    *[jax.ShapeDtypeStruct((16,), jnp.int32)] * 4,
    in_specs=(ALL,) * 6,
    out_specs=ALL,
)
def ragged_all_to_all(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes):
  return lax.ragged_all_to_all(
      operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, axis_name=BOTH)


def matmul(a, b):
  return jnp.sum(a @ b, axis=0), jnp.any(a > 3, axis=1)


def partitioned():
  """A program whose collectives the partitioner puts in."""
  a = NamedSharding(mesh, P("x", "y"))
  b = NamedSharding(mesh, P("y", None))
  out = (NamedSharding(mesh, P()), NamedSharding(mesh, P("x")))
  return jax.jit(matmul, in_shardings=(a, b), out_shardings=out), (f32(4, 8), f32(8, 6))


def transposed():
  """Layouts that are not row-major may reach the collectives."""
  a = NamedSharding(mesh, P("x", "y"))
  return (
      jax.jit(lambda v: jnp.sin(v.T) @ v, in_shardings=a, out_shardings=a),
      (f32(8, 8),),
  )


def donated():
  a = NamedSharding(mesh, P("x", "y"))
  return jax.jit(lambda v, w: (v + w, w.sum()), in_shardings=(a, a), donate_argnums=0), (f32(4, 4), f32(4, 4))


PROGRAMS["partitioned"] = partitioned()
PROGRAMS["transposed"] = transposed()
PROGRAMS["donated"] = donated()


XLA_TYPES = {
    "bool": 1, "int8": 2, "int32": 4, "int64": 5, "uint32": 8, "float16": 10, "float32": 11, "float64": 12,
    "complex64": 15, "bfloat16": 16, "int4": 21,
}  # fmt: skip


def example(index, spec):
  """Small whole numbers: sums are exact in every type."""
  count = int(np.prod(spec.shape))
  return ((np.arange(count) * 3 + index) % 7 - 2).reshape(spec.shape).astype(spec.dtype)


def ragged_arguments():
  """Device s sends one more element to device t than s + t says, modulo 3."""
  sizes = np.array([[(s + t) % 3 for t in range(4)] for s in range(4)], np.int32)
  send_offsets = np.concatenate([np.zeros((4, 1), np.int32), np.cumsum(sizes, axis=1)[:, :-1]], axis=1)
  receive_offsets = np.concatenate([np.zeros((1, 4), np.int32), np.cumsum(sizes, axis=0)[:-1]], axis=0)
  operand = np.arange(32, dtype=np.float32) + 100
  output = -np.arange(32, dtype=np.float32)
  tables = (send_offsets, sizes, receive_offsets, sizes.T)
  result = output.copy()
  for s in range(4):
    for t in range(4):
      for k in range(sizes[s, t]):
        result[8 * t + receive_offsets[s, t] + k] = operand[8 * s + send_offsets[s, t] + k]
  return (operand, output) + tuple(t.astype(np.int32).reshape(-1) for t in tables), result


def golden_lines(kind, index, array):
  for shard in sorted(array.addressable_shards, key=lambda shard: shard.device.id):
    data = np.asarray(shard.data)
    dims = ",".join(map(str, data.shape)) or "-"
    values = data.astype(np.int8) if data.dtype.name == "int4" else data
    yield f"{kind} {index} {shard.device.id} {XLA_TYPES[data.dtype.name]} {dims} {values.tobytes().hex() or '-'}"


def golden(name, f, specs):
  if name == "ragged_all_to_all":  # JAX cannot run it on the CPU
    values, result = ragged_arguments()
    outputs = (jax.device_put(result, NamedSharding(mesh, ALL)),)
  else:
    values = [example(i, spec) for i, spec in enumerate(specs)]
    outputs = None
  shardings = f.lower(*specs).compile().input_shardings[0] if outputs is None else [NamedSharding(mesh, ALL)] * 6
  inputs = [jax.device_put(value, sharding) for value, sharding in zip(values, shardings)]
  lines = [line for i, value in enumerate(inputs) for line in golden_lines("input", i, value)]
  if outputs is None:
    outputs = jax.tree.leaves(f(*inputs))
  return lines + [line for i, value in enumerate(outputs) for line in golden_lines("output", i, value)]


def main():
  folder = pathlib.Path(__file__).parent
  for name, (f, args) in PROGRAMS.items():
    exported = export.export(f, platforms=["tpu"], disabled_checks=UNCHECKED)(*args)
    (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)
    lines = golden(name, f, args)
    (folder / f"{name}.golden").write_text("\n".join(lines) + "\n")
    print(name, len(exported.mlir_module_serialized), len(lines))


if __name__ == "__main__":
  main()
