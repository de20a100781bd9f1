"""Programs as numerical users write them: what XLA's CPU compiler does with programs lowered for TPUs."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

RNG = np.random.default_rng(1)
A = RNG.standard_normal((12, 12)).astype(np.float32)
SPD = A @ A.T + 12 * np.eye(12, dtype=np.float32)
V = RNG.standard_normal((12,)).astype(np.float32)

PROGRAMS = {
    'cholesky': (lambda: jnp.linalg.cholesky(SPD), lambda: np.linalg.cholesky(SPD)),
    'qr': (lambda: jnp.abs(jnp.linalg.qr(A)[1]), lambda: np.abs(np.linalg.qr(A)[1])),
    'eigh': (lambda: jnp.linalg.eigh(SPD)[0], lambda: np.linalg.eigh(SPD)[0]),
    'svd': (lambda: jnp.linalg.svd(A)[1], lambda: np.linalg.svd(A)[1]),
    'triangular-solve': (lambda: jax.scipy.linalg.solve_triangular(np.tril(SPD), V, lower=True),
                         lambda: np.linalg.solve(np.tril(SPD), V)),
    'cho-solve': (lambda: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(SPD), V), lambda: np.linalg.solve(SPD, V)),
    'fft': (lambda: jnp.fft.fft(V), lambda: np.fft.fft(V)),
    'irfft2': (lambda: jnp.fft.irfft2(jnp.fft.rfft2(A)), lambda: A),
    'sort': (lambda: jnp.sort(V), lambda: np.sort(V)),
    'argsort': (lambda: jnp.argsort(V), lambda: np.argsort(V)),
    'top-k': (lambda: lax.top_k(V, 3)[0], lambda: np.sort(V)[::-1][:3]),
    'unique': (lambda: jnp.unique(np.array([3, 1, 3, 2])), lambda: np.array([1, 2, 3])),
    'einsum': (lambda: jnp.einsum('ij,jk,k->i', A, SPD, V), lambda: A @ SPD @ V),
    'erf': (lambda: lax.erf(np.float32(.5)), lambda: np.float32(0.5204999)),
    'lgamma': (lambda: lax.lgamma(np.float32(4)), lambda: np.float32(np.log(6))),
    'conv': (lambda: jnp.convolve(V, np.ones(3, np.float32)), lambda: np.convolve(V, np.ones(3, np.float32))),
    'softmax': (lambda: jax.nn.softmax(V), lambda: np.exp(V) / np.exp(V).sum()),
    'cumsum': (lambda: jnp.cumsum(V), lambda: np.cumsum(V)),
    'associative-scan': (lambda: lax.associative_scan(jnp.multiply, 1 + V / 10), lambda: np.cumprod(1 + V / 10)),
    'grad': (lambda: jax.grad(lambda v: (jnp.sin(v) * v).sum())(V), lambda: np.cos(V) * V + np.sin(V)),
    'hessian': (lambda: jax.hessian(lambda v: (v**3).sum())(V), lambda: np.diag(6 * V)),
    'interp': (lambda: jnp.interp(.5, np.arange(2.), np.array([1., 3.])), lambda: 2.),
    'bessel': (lambda: jax.scipy.special.i0e(np.float32(1)), lambda: np.float32(0.4657596)),
    'bf16-dot': (lambda: (A.astype(jnp.bfloat16) @ jnp.eye(12, dtype=jnp.bfloat16)).astype(np.float32),
                 lambda: A.astype(jnp.bfloat16).astype(np.float32)),
    'bitcast': (lambda: lax.bitcast_convert_type(V, np.uint32), lambda: V.view(np.uint32)),
    'dynamic-slice': (lambda: lax.dynamic_slice(A, (3, 4), (2, 5)), lambda: A[3:5, 4:9]),
    'segment-sum': (lambda: jax.ops.segment_sum(V, np.arange(12) % 3), lambda: np.array([V[k::3].sum() for k in range(3)])),
    'attention': (lambda: jax.nn.dot_product_attention(*(A.reshape(1, 12, 3, 4),) * 3),
                  lambda: attention(A.reshape(12, 3, 4))),
}


def attention(x):
  scores = np.einsum('qhd,khd->hqk', x, x) / 2
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  return np.einsum('hqk,khd->qhd', weights / weights.sum(-1, keepdims=True), x)[None]


@pytest.mark.parametrize('program,reference', PROGRAMS.values(), ids=PROGRAMS.keys())
def test_program(devices, program, reference):
  with jax.default_device(devices[9]):
    np.testing.assert_allclose(program(), reference(), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize('implementation', ['threefry2x32', 'rbg'])
def test_random_numbers(devices, implementation):
  with jax.default_device(devices[3]):
    key = jax.random.key(3, impl=implementation)
    x = np.asarray(jax.random.normal(key, (5000,)))
    assert abs(x.mean()) < .1 and abs(x.std() - 1) < .1
    np.testing.assert_array_equal(x, jax.random.normal(key, (5000,)))
    assert sorted(np.asarray(jax.random.permutation(key, 50))) == list(range(50))


def test_threefry_is_the_same_everywhere():
  """A published value of the generator."""
  from jax.extend.random import threefry_2x32
  zeros = np.zeros(2, np.uint32)
  np.testing.assert_array_equal(threefry_2x32(zeros, zeros), np.array([0x6b200159, 0x99ba4efe], np.uint32))


def test_compiled_program_can_be_asked_about(devices):
  lowered = jax.jit(lambda x: (x @ x).sum()).lower(jax.ShapeDtypeStruct((8, 8), np.float32))
  compiled = lowered.compile()
  np.testing.assert_allclose(compiled(np.ones((8, 8), np.float32)), 512)


def test_compiler_options(devices):
  f = jax.jit(lambda x: x + 1, compiler_options={'xla_cpu_enable_fast_math': False})
  assert int(f(jax.device_put(np.int32(1), devices[0]))) == 2
