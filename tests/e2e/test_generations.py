"""The other TPU generations: device list and one sum over everything, each on a small cluster of its own."""
import pytest

import client_process

# type, slices, device kind, devices in all, coordinates of a slice's devices (x, y, z, core), hosts of a slice
GENERATIONS = {
    'v4': ('v4-16', 1, 'TPU v4', [(k % 2, k // 2 % 2, k // 4, 0) for k in range(8)], 2),
    'v5e': ('v5litepod-8', 2, 'TPU v5 lite', None, 2),
    'v5e-one-host': ('tpuv5e1t:2x4', 1, 'TPU v5 lite', None, 1),
    'v6e': ('v6e-4', 2, 'TPU v6 lite', [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0)], 1),
    'v6e-single': ('v6e-1', 2, 'TPU v6 lite', [(0, 0, 0, 0)], 1),
    'v7x': ('tpu7x-8', 1, 'TPU7x', [(k // 2 % 2, k // 4, 0, k % 2) for k in range(8)], 1),
}


@pytest.mark.parametrize('tpu_type,slices,kind,coords,hosts', GENERATIONS.values(), ids=GENERATIONS.keys())
def test_generation(make_cluster, tpu_type, slices, kind, coords, hosts):
  cluster = make_cluster(slices=slices, tpu_type=tpu_type)
  client_process.run(cluster, f'''
      import re
      kind, slices, hosts, coords = {kind!r}, {slices}, {hosts}, {coords!r}
      found = jax.devices()
      per_slice = len(found) // slices
      assert len(set(d.id for d in found)) == len(found)
      seen = []
      for k, d in enumerate(found):
        assert d.device_kind == kind and d.slice_index == k // per_slice, d
        text = re.fullmatch(r'device\\(\\d+,TPU_DEVICE,coords=\\[(\\d+),(\\d+),(\\d+),(\\d+)\\],vtask=(\\d+),slice=(\\d+),'
                            r'default_mem=device,mem_spaces=3\\)', repr(d))
        assert text, repr(d)
        x, y, z, core, vtask, s = map(int, text.groups())
        assert vtask == k % per_slice * hosts // per_slice and s == d.slice_index, repr(d)
        assert list(d.coords) == [x, y, z] and d.core_on_chip == core, repr(d)
        if coords: assert (x, y, z, core) == coords[k % per_slice], repr(d)
        seen.append((s, x, y, z, core))
      assert len(set(seen)) == len(seen)
      n = len(found)
      mesh = spmd.mesh_of(found, (n,), ('i',))
      x = spmd.integers(1, (n, 33))
      np.testing.assert_array_equal(spmd.run(lambda x: lax.psum(x, 'i'), mesh, x), np.broadcast_to(x.sum(0), x.shape))
      from jax.experimental import mesh_utils
      if slices == 1 and per_slice > 1: assert mesh_utils.create_device_mesh((n,), found).size == n
      ''')
