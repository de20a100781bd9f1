"""The notebook that Pathways users start from: devices, pmap over everything, one slice feeding the other."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

DEVICE = re.compile(r'device\(\d+,TPU_DEVICE,coords=\[\d+,\d+,\d+,0\],vtask=\d+,slice=\d+,default_mem=device,mem_spaces=3\)')


@pytest.mark.cluster
class TestDevices:

  def test_form_and_order(self, devices):
    assert len(jax.devices()) == 16
    first = devices[0].id
    for place, d in enumerate(devices):
      s, within = divmod(place, 8)
      x, y, z = within % 2, within // 2 % 2, within // 4
      assert DEVICE.fullmatch(repr(d)), repr(d)
      assert repr(d) == (f'device({d.id},TPU_DEVICE,coords=[{x},{y},{z},0],vtask={z},slice={s},default_mem=device,'
                         'mem_spaces=3)')
      assert d.id == first + 18 * s + within  # within a slice consecutive, slices 2 * chips + hosts apart

  def test_attributes(self, devices):
    for place, d in enumerate(devices):
      assert d.slice_index == place // 8
      assert d.virtual_task_index == place % 8 // 4
      assert list(d.coords) == [place % 2, place // 2 % 2, place % 8 // 4]
      assert d.core_on_chip == 0
      assert d.device_kind in ('TPU v5', 'TPU v5p')
      assert d.platform == 'tpu'
      assert d.process_index == 0

  def test_client(self, devices):
    client = devices[0].client
    assert client.runtime_type == 'proxy/pathways'
    assert client.platform == 'tpu' and jax.default_backend() == 'tpu'
    assert 'emulat' in client.platform_version.lower()
    assert jax.process_count() == 1 and jax.local_devices() == jax.devices()

  def test_memories(self, devices):
    for d in devices:
      assert d.default_memory().kind == 'device'
      assert {m.kind for m in d.addressable_memories()} == {'device', 'pinned_host', 'unpinned_host'}

  def test_jax_mesh_of_both_slices(self):
    """JAX's own helper for multi-slice meshes trusts coords, core_on_chip and slice_index."""
    from jax.experimental import mesh_utils
    mesh = mesh_utils.create_hybrid_device_mesh((4, 2), (2, 1))
    assert mesh.shape == (8, 2)
    assert {d.slice_index for d in mesh[:4].flat} == {0} and {d.slice_index for d in mesh[4:].flat} == {1}
    assert len(set(mesh_utils.create_device_mesh((2, 2, 2), jax.devices()[:8]).flat)) == 8


def test_jit_onto_one_device(devices):
  out = jax.jit(jnp.sin, device=devices[-1])(np.pi / 2.)
  assert out.devices() == {devices[-1]}
  assert abs(float(out) - 1) < 1e-6


def test_pmap_over_everything(devices):
  y = jax.pmap(lambda x: lax.psum(1, 'i'), 'i')(jnp.arange(16))
  np.testing.assert_array_equal(y, np.full(16, 16))
  y = jax.pmap(lambda x: lax.psum(x, 'i'), 'i')(jnp.arange(16))
  np.testing.assert_array_equal(y, np.full(16, 120))


def test_one_slice_feeds_the_other(slices):
  y = jax.pmap(lambda x: lax.psum(1, 'i'), 'i', devices=slices[0])(jnp.arange(8))
  np.testing.assert_array_equal(y, np.full(8, 8))
  assert [s.device for s in y.global_shards] == slices[0]
  z = jax.pmap(lambda x: x + lax.axis_index('i'), 'i', devices=slices[1])(y)
  np.testing.assert_array_equal(z, 8 + np.arange(8))
  assert [s.device for s in z.global_shards] == slices[1]
  assert [int(np.asarray(s.data).item()) for s in z.global_shards] == list(range(8, 16))


@pytest.mark.cluster
def test_pathwaysutils(devices):
  import pathwaysutils
  assert pathwaysutils.is_pathways_backend_used()
  assert jax.devices()[:16] == devices
