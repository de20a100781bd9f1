"""Runs one of these programs on whatever backend JAX was given and keeps what it found: `python -m programs NAME FILE.npz`."""
import importlib
import os
import sys
import time

if os.environ.get('JAX_PLATFORMS') == 'proxy':
  import pathwaysutils
  pathwaysutils.initialize()  # JAX before 0.12 knows the backend only so

import jax
import numpy as np


def main(name, path):
  module = importlib.import_module(f'programs.{name}')
  for option, value in getattr(module, 'CONFIG', {}).items():
    jax.config.update(option, value)
  start = time.monotonic()
  found = module.program(jax.devices()[:16])
  print(f'{name}: {time.monotonic() - start:.1f} s', flush=True)
  np.savez(path, **{jax.tree_util.keystr(keys, simple=True, separator='/'): value for keys, value in jax.tree_util.tree_flatten_with_path(found)[0]})


if __name__ == '__main__':
  main(*sys.argv[1:])
