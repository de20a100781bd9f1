"""Errors: the right exception, at the right place, saying what happened; and everything goes on afterwards."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from client import spmd

pytestmark = pytest.mark.cluster


@pytest.fixture(scope='module')
def ring(devices):
  return spmd.mesh_of(devices, (16,), ('i',))


@pytest.fixture(autouse=True)
def afterwards_all_is_well(ring):
  yield
  x = spmd.integers(1, (16, 4))
  np.testing.assert_array_equal(spmd.run(lambda x: lax.psum(x, 'i'), ring, x)[5], x.sum(0))


def compile_text(text, devices):
  """Compiles StableHLO text as it is, without what JAX would have checked first."""
  from jax._src.interpreters import mlir
  from jax._src.lib import xla_client as xc
  with mlir.make_ir_context():
    module = mlir.ir.Module.parse(text)
    options = xc.CompileOptions()
    options.device_assignment = xc.DeviceAssignment.create(np.array([[devices[0].id]]))
    return devices[0].client.compile_and_load(module, xc.DeviceList((devices[0],)), options)


def test_compile_error_carries_the_compilers_message(devices):
  text = '''module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @no_such_target_anywhere(%a) {api_version = 4 : i32, backend_config = {}} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32> } }'''
  with pytest.raises(jax.errors.JaxRuntimeError, match='no_such_target_anywhere'):
    compile_text(text, devices)


def test_compile_error_of_a_jitted_function(devices):
  f = jax.jit(lambda x: jax.ffi.ffi_call('not_registered_here', jax.ShapeDtypeStruct((4,), np.float32))(x))
  with pytest.raises(jax.errors.JaxRuntimeError, match='not_registered_here'):
    f(jax.device_put(np.zeros(4, np.float32), devices[0]))


def test_two_compile_errors_at_once(devices):
  """The first wrong program does not stop a right one that is compiled beside it."""
  from concurrent.futures import ThreadPoolExecutor
  bad = jax.jit(lambda x: jax.ffi.ffi_call('not_registered_here', jax.ShapeDtypeStruct((5,), np.float32))(x))
  good = jax.jit(lambda x: x * 3)
  with ThreadPoolExecutor(4) as pool:
    bads = [pool.submit(bad, jax.device_put(np.zeros(5, np.float32), devices[k])) for k in range(2)]
    goods = [pool.submit(good, jax.device_put(np.float32(k), devices[k])) for k in range(2)]
  for k in range(2):
    assert 'not_registered_here' in str(bads[k].exception())
    assert float(goods[k].result()) == 3 * k


def test_out_of_memory_in_a_program(devices):
  """1 TiB in one result: RESOURCE_EXHAUSTED where the result is awaited, at the latest."""
  f = jax.jit(lambda x: jnp.broadcast_to(x, (1 << 38,)) + lax.iota(jnp.float32, 1 << 38))
  with pytest.raises(jax.errors.JaxRuntimeError, match='RESOURCE_EXHAUSTED'):
    jax.block_until_ready(f(jax.device_put(np.float32(1), devices[2])))


def test_out_of_memory_spreads_to_what_depends_on_it(devices):
  huge = jax.jit(lambda x: jnp.broadcast_to(x, (1 << 38,)) + lax.iota(jnp.float32, 1 << 38))
  x = huge(jax.device_put(np.float32(1), devices[2]))
  y = jax.jit(lambda x: x[:3] * 2)(x)
  moved = jax.device_put(y, devices[11])
  for failed in (y, moved, moved + 1):
    with pytest.raises(jax.errors.JaxRuntimeError, match='RESOURCE_EXHAUSTED'):
      np.asarray(failed)


def test_a_late_error_names_the_line_that_caused_it(devices):
  huge = jax.jit(lambda x: jnp.broadcast_to(x, (1 << 38,)) + lax.iota(jnp.float32, 1 << 38))
  x = jax.device_put(np.float32(1), devices[2])

  def culprit():
    return huge(x)

  y = culprit()
  with pytest.raises(jax.errors.JaxRuntimeError, match=r'test_errors\.py:\d+ \(.*culprit\)'):
    jax.block_until_ready(y)


def test_out_of_memory_in_one_shard_of_a_collective_program(ring):
  """Every device fails alike; nobody waits for a collective that will not come."""

  def f(x):
    big = jnp.broadcast_to(x[0], (1 << 38,)) + lax.iota(jnp.float32, 1 << 38)
    return lax.psum(big[:4] + lax.cumsum(big)[-4:], 'i')

  with pytest.raises(jax.errors.JaxRuntimeError, match='RESOURCE_EXHAUSTED'):
    spmd.run(f, ring, np.ones((16, 4), np.float32))


def test_wrong_argument_shapes_below_jax(devices):
  """A wrong shape, given to the executable itself, where JAX checks nothing."""
  executable = compile_text('module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }', devices)
  wrong = jax.device_put(np.zeros((5,), np.float32), devices[0])
  with pytest.raises(jax.errors.JaxRuntimeError):
    results = executable.execute_sharded([wrong])
    jax.block_until_ready(results.disassemble_into_single_device_arrays())
  with pytest.raises(jax.errors.JaxRuntimeError):
    executable.execute_sharded([])
  right = executable.execute_sharded([jax.device_put(np.arange(4, dtype=np.float32), devices[0])])
  np.testing.assert_array_equal(right.disassemble_into_single_device_arrays()[0][0], np.arange(4))


def test_tokens_go_in_and_come_out(devices):
  """JAX feeds a program's token with an empty array; what comes out is a token."""
  text = '''module { func.func public @main(%t: !stablehlo.token, %a: tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>) {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    %1 = stablehlo.after_all %t : !stablehlo.token
    return %1, %0 : !stablehlo.token, tensor<4xf32> } }'''
  executable = compile_text(text, devices)
  token = jax.device_put(np.zeros((0,), bool), devices[0])
  x = jax.device_put(np.arange(4, dtype=np.float32), devices[0])
  for _ in range(3):  # results are described once
    results = executable.execute_sharded([token, x]).disassemble_into_single_device_arrays()
    np.testing.assert_array_equal(results[1][0], np.arange(4) * 2)
    x = jax.device_put(np.arange(4, dtype=np.float32), devices[0])


def test_jax_sees_wrong_shapes_itself(ring):
  with pytest.raises(TypeError):
    jax.jit(jnp.dot)(np.zeros((3, 4)), np.zeros((5, 6)))
  with pytest.raises(ValueError, match='divi'):
    jax.device_put(np.zeros((17, 2)), NamedSharding(ring, P('i')))


# What is left for later says so by name --------------------------------------------------------------------------------


def failure_of(f):
  with pytest.raises(Exception) as caught:
    jax.block_until_ready(f())
    jax.effects_barrier()
  return str(caught.value)


def test_host_callbacks_are_refused(devices):
  x = jax.device_put(np.float32(1), devices[0])
  shape = jax.ShapeDtypeStruct((), np.float32)
  for f in (lambda x: jax.pure_callback(lambda x: x, shape, x), lambda x: jax.experimental.io_callback(lambda x: x, shape, x),
            lambda x: jax.debug.callback(lambda x: None, x) or x):
    message = failure_of(lambda: jax.jit(f)(x))
    assert 'UNIMPLEMENTED' in message or 'not supported' in message, message
    assert 'callback' in message.lower(), message


def test_plugin_programs_that_nobody_serves(devices):
  from jax._src.lib import xla_client as xc  # pylint: disable=unused-import
  from pathwaysutils import plugin_executable
  message = failure_of(lambda: plugin_executable.PluginExecutable('{"noSuchRequest": {}}').call()[1].result())
  assert 'Bad PluginProgram' in message or 'UNIMPLEMENTED' in message, message
