"""Runs the measurements inside one JAX process and writes {name: [seconds, ...]} as JSON.

Usage: measure.py OUTPUT [--quick] [--only NAME ... | --bulk] [--process K --processes N --coordinator HOST:PORT]
"""
import argparse
import faulthandler
import json
import sys
import traceback

import jax

LIMIT = 180  # seconds for one measurement; a set-up that hangs ends there, with what it has


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('output')
  parser.add_argument('--quick', action='store_true')
  parser.add_argument('--only', nargs='*')
  parser.add_argument('--bulk', action='store_true', help='no measurement: transfers without end')
  parser.add_argument('--process', type=int, default=0)
  parser.add_argument('--processes', type=int, default=1)
  parser.add_argument('--coordinator')
  arguments = parser.parse_args()
  if jax.config.jax_platforms == 'proxy':
    import pathwaysutils
    pathwaysutils.initialize()
  if arguments.processes > 1:
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
    jax.distributed.initialize(arguments.coordinator, arguments.processes, arguments.process)

  import measurements
  if arguments.bulk:
    measurements.bulk_client()
  results, failures = {}, 0
  context = measurements.Context(arguments.quick)
  for name in arguments.only:
    print(f'{name} ...', file=sys.stderr, flush=True)
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    try:
      results[name] = measurements.MEASUREMENTS[name][1](context)
    except Exception:  # pylint: disable=broad-except
      traceback.print_exc()
      results[name] = []
      failures += 1
      if arguments.processes > 1:
        break  # the other processes would wait for this one
    with open(arguments.output, 'w', encoding='utf-8') as f:
      json.dump(results, f)
  return 1 if failures else 0


if __name__ == '__main__':
  sys.exit(main())
