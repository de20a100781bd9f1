"""What JAX tells about compiled programs, options of single compiles, layouts, and exported programs."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

from client import spmd


def layer(a, b):
  return jnp.sin(a @ b).sum()


A = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) / 1000
B = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) / 1000


def test_costs_are_those_of_one_device():
  whole = jax.jit(layer).lower(A, B).compile().cost_analysis()
  assert whole['flops'] >= 2 * 64 * 32 * 16
  assert whole['transcendentals'] == 64 * 16
  assert whole['bytes accessed'] >= A.nbytes + B.nbytes
  mesh = spmd.mesh_of(jax.devices(), (16,), ('x',))
  a = jax.device_put(A, NamedSharding(mesh, P('x', None)))
  part = jax.jit(layer).lower(a, B).compile().cost_analysis()
  assert part['transcendentals'] == 64 * 16 / 16
  assert 2 * 64 * 32 * 16 / 16 <= part['flops'] < whole['flops'] / 8
  assert part['bytes accessed0{}'] >= A.nbytes / 16


def test_costs_of_a_lowered_program():
  costs = jax.jit(lambda x: x @ x).lower(np.ones((8, 8), np.float32)).compile().cost_analysis()
  assert costs['flops'] == 2 * 8 * 8 * 8


def test_the_text_shows_the_optimized_program_with_its_collectives():
  mesh = spmd.mesh_of(jax.devices(), (16,), ('x',))
  a = jax.device_put(A, NamedSharding(mesh, P('x', None)))
  compiled = jax.jit(layer).lower(a, B).compile()
  text = compiled.as_text()
  assert text.startswith('HloModule jit_layer')
  assert 'num_partitions=16' in text and 'f32[4,32]' in text
  assert re.search(r'= f32\[\] all-reduce\(', text)
  assert 'sine(' in text and 'jit(layer)' in text
  assert text == compiled.as_text()
  compiled(a, B)  # it is not harmed by that


def test_memory_of_a_compiled_program():
  stats = jax.jit(layer).lower(A, B).compile().memory_analysis()
  assert stats.argument_size_in_bytes == A.nbytes + B.nbytes
  assert stats.output_size_in_bytes == 4


def test_shardings_of_a_compiled_program():
  mesh = spmd.mesh_of(jax.devices(), (4, 4), ('x', 'y'))
  s = NamedSharding(mesh, P('x', 'y'))
  compiled = jax.jit(lambda a: a.T * 2).lower(jax.ShapeDtypeStruct((8, 8), np.float32, sharding=s)).compile()
  (given,), _ = compiled.input_shardings
  assert given.is_equivalent_to(s, 2)
  assert compiled.output_shardings.is_equivalent_to(NamedSharding(mesh, P('y', 'x')), 2)


# Options of one compile ------------------------------------------------------------------------------------------------


def test_options_of_one_compile():
  x = np.arange(8, dtype=np.float32)
  f = jax.jit(lambda v: v * 2, compiler_options={'xla_cpu_enable_fast_math': True})
  np.testing.assert_array_equal(f(x), x * 2)
  lowered = jax.jit(lambda v: v * 3).lower(x)
  compiled = lowered.compile(compiler_options={'xla_llvm_disable_expensive_passes': True})
  np.testing.assert_array_equal(compiled(x), x * 3)


def test_unknown_options_are_named():
  lowered = jax.jit(lambda v: v * 2).lower(np.ones(8, np.float32))
  with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT.*'xla_no_such_option'"):
    lowered.compile(compiler_options={'xla_no_such_option': True})
  with pytest.raises(jax.errors.JaxRuntimeError, match='xla_no_such_option'):
    jax.jit(lambda v: v * 2, compiler_options={'xla_no_such_option': 1})(np.ones(8, np.float32))
  with pytest.raises(jax.errors.JaxRuntimeError, match='xla_backend_optimization_level'):
    lowered.compile(compiler_options={'xla_backend_optimization_level': 'fast'})
  np.testing.assert_array_equal(lowered.compile()(np.ones(8, np.float32)), np.full(8, 2, np.float32))


# Layouts ---------------------------------------------------------------------------------------------------------------


def test_a_program_with_layouts_of_its_own():
  s = SingleDeviceSharding(jax.devices()[0])
  column_major = Layout(major_to_minor=(1, 0))
  x = jax.device_put(A, Format(column_major, s))
  f = jax.jit(lambda v: v * 2, in_shardings=Format(column_major, s), out_shardings=Format(column_major, s))
  compiled = f.lower(x).compile()
  (given,), _ = compiled.input_formats
  assert given.layout.major_to_minor == compiled.output_formats.layout.major_to_minor == (1, 0)
  for y in (compiled(x), f(x), f(f(x)) / 2):
    np.testing.assert_array_equal(y, A * 2)
  assert f(x).format.layout.major_to_minor == (1, 0)


def test_layouts_that_the_compiler_chooses():
  s = SingleDeviceSharding(jax.devices()[0])
  auto = Format(Layout.AUTO, s)
  compiled = jax.jit(lambda v: v.T, in_shardings=auto, out_shardings=auto).lower(
      jax.ShapeDtypeStruct(A.shape, A.dtype)).compile()
  (given,), _ = compiled.input_formats
  y = compiled(jax.device_put(A, given))
  assert y.format.layout.major_to_minor == compiled.output_formats.layout.major_to_minor
  np.testing.assert_array_equal(y, A.T)


def test_layouts_of_sharded_arrays():
  mesh = spmd.mesh_of(jax.devices(), (4, 4), ('x', 'y'))
  s = NamedSharding(mesh, P('x', 'y'))
  wanted = Format(Layout(major_to_minor=(1, 0)), s)
  f = jax.jit(lambda v: v + 1, out_shardings=wanted)
  y = f(jax.device_put(A, s))
  assert y.format.layout.major_to_minor == (1, 0)
  np.testing.assert_array_equal(y, A + 1)
  np.testing.assert_allclose(jax.jit(lambda v: v.sum(0), in_shardings=wanted)(y), (A + 1).sum(0), rtol=1e-6)
  np.testing.assert_array_equal(y.addressable_shards[5].data, (A + 1)[y.addressable_shards[5].index])


def test_the_wrong_layout_is_refused():
  s = SingleDeviceSharding(jax.devices()[0])
  compiled = jax.jit(lambda v: v * 2, in_shardings=Format(Layout(major_to_minor=(1, 0)), s)).lower(
      jax.ShapeDtypeStruct(A.shape, A.dtype)).compile()
  with pytest.raises(ValueError, match='layouts that disagree'):
    compiled(jax.device_put(A, s))


# Export ----------------------------------------------------------------------------------------------------------------


def test_an_exported_program_comes_back():
  exported = export.export(jax.jit(layer))(jax.ShapeDtypeStruct(A.shape, A.dtype), jax.ShapeDtypeStruct(B.shape, B.dtype))
  again = export.deserialize(exported.serialize())
  np.testing.assert_allclose(again.call(A, B), jax.jit(layer)(A, B), rtol=1e-6)
  np.testing.assert_allclose(jax.jit(again.call)(A, B), jax.jit(layer)(A, B), rtol=1e-6)


def test_an_exported_program_with_gradients_and_shardings():
  mesh = spmd.mesh_of(jax.devices(), (16,), ('x',))
  a = jax.device_put(A, NamedSharding(mesh, P('x', None)))
  f = jax.jit(layer, in_shardings=(NamedSharding(mesh, P('x', None)), NamedSharding(mesh, P())))
  exported = export.export(f)(a, B)
  assert exported.nr_devices == 16
  again = export.deserialize(exported.serialize(vjp_order=1))
  b = jax.device_put(B, NamedSharding(mesh, P()))
  np.testing.assert_allclose(again.call(a, b), f(a, b), rtol=1e-6)
  np.testing.assert_allclose(jax.grad(again.call, 1)(a, b), jax.grad(f, 1)(a, b), rtol=1e-5)


def test_an_exported_program_of_any_size():
  rows, = export.symbolic_shape('rows,')
  exported = export.export(jax.jit(lambda v: v.sum(0)))(jax.ShapeDtypeStruct((rows, 4), np.float32))
  again = export.deserialize(exported.serialize())
  for n in (1, 5):
    np.testing.assert_array_equal(again.call(np.ones((n, 4), np.float32)), np.full(4, n, np.float32))


def test_lowering_for_another_platform():
  for platform in ('cpu', 'cuda', 'tpu'):
    lowered = jax.jit(layer).trace(A, B).lower(lowering_platforms=(platform,))
    assert 'stablehlo.dot_general' in lowered.as_text()
    exported = export.export(jax.jit(layer), platforms=[platform])(A, B)
    assert exported.platforms == (platform,)
  both = export.export(jax.jit(layer), platforms=['cpu', 'tpu'])(A, B)
  np.testing.assert_allclose(export.deserialize(both.serialize()).call(A, B), jax.jit(layer)(A, B), rtol=1e-6)
  foreign = export.export(jax.jit(layer), platforms=['cuda'])(A, B)
  with pytest.raises(ValueError, match="platform"):
    foreign.call(A, B)


# Large and many --------------------------------------------------------------------------------------------------------


def test_a_program_with_large_constants():
  big = np.random.default_rng(0).random((4 << 20,), np.float32)  # 16 MiB
  f = jax.jit(lambda v: v + big)
  np.testing.assert_array_equal(f(np.float32(1)), big + 1)


def test_a_program_of_many_arguments():
  arguments = [np.float32(i) for i in range(1000)]
  assert jax.jit(lambda xs: sum(xs))(arguments) == sum(range(1000))


def test_a_deep_program():
  def deep(x):
    for _ in range(800):
      x = jnp.sin(x) + 1
    return x

  compiled = jax.jit(deep).lower(np.float32(0)).compile()
  assert 1 < compiled(np.float32(0)) < 2


def test_a_loop_of_compiles_that_are_dropped():
  for i in range(10):
    f = jax.jit(lambda v, i=i: v * i + lax.rsqrt(v))
    np.testing.assert_allclose(f(np.float32(4)), 4 * i + 0.5)
