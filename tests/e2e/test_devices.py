"""What the mission shows: the device list that the first client of a fresh cluster prints, and later clients' own ids."""
import ast
import re

import client_process


def expected_list(first, slices=2):
  lines = []
  for s in range(slices):
    for k in range(8):
      x, y, z = k % 2, k // 2 % 2, k // 4
      lines.append(f'device({first + 18 * s + k},TPU_DEVICE,coords=[{x},{y},{z},0],vtask={z},slice={s},default_mem=device,'
                   'mem_spaces=3)')
  return '[' + ',\n '.join(lines) + ']'


def ids(cluster):
  out = client_process.run(cluster, 'say("ids", [d.id for d in jax.devices()])')
  return ast.literal_eval(re.search(r'^ids (\[.*\])$', out, re.M)[1])


def test_first_client_sees_exactly_the_documented_list(cluster):
  assert expected_list(144) in cluster.first_output


def test_up_says_what_to_set(cluster):
  for text in ('JAX_PLATFORMS=proxy', f'JAX_BACKEND_TARGET=grpc://127.0.0.1:{cluster.port}',
               'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true'):
    assert text in cluster.up_output


def test_every_client_gets_ids_of_its_own(cluster):
  seen = set(range(144, 152)) | set(range(162, 170))
  for _ in range(2):
    new = ids(cluster)
    assert len(set(new)) == 16 and min(new) > 0 and not seen & set(new)
    assert new == [new[0] + 18 * s + k for s in range(2) for k in range(8)]
    seen |= set(new)
