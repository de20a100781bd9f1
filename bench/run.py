"""Measures the three set-ups one after the other and prints a Markdown table. See README.md."""
import argparse
import json
import os
import signal
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import measurements
import setups


def show(seconds):
  if seconds is None:
    return '-'
  if seconds < 1e-3:
    return f'{seconds * 1e6:.0f} us'
  if seconds < 1:
    return f'{seconds * 1e3:.{1 if seconds < 0.1 else 0}f} ms'
  return f'{seconds:.2f} s'


def ratio(a, b):
  return '-' if a is None or b is None else f'{a / b:.2f}'


def table(medians):
  """One line for each measurement; the ratios say how many times the time of the other set-up ours takes."""
  lines = ['| | ours | one process | multi-controller | ours / one | ours / multi |', '|---|---:|---:|---:|---:|---:|']
  names = [n for n in measurements.MEASUREMENTS if any(n in m for m in medians.values())]
  for name in names:
    ours, one, multi = (medians.get(s, {}).get(name) for s in ('ours', 'one', 'multi'))
    lines.append(f'| {measurements.MEASUREMENTS[name][0]} | {show(ours)} | {show(one)} | {show(multi)} | {ratio(ours, one)} | '
                 f'{ratio(ours, multi)} |')
  return '\n'.join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--quick', action='store_true', help='fewer repetitions')
  parser.add_argument('--only', nargs='+', choices=measurements.MEASUREMENTS, help='these measurements')
  parser.add_argument('--setups', nargs='+', choices=setups.SETUPS, default=list(setups.SETUPS))
  parser.add_argument('--json', help='write all numbers to this file')
  arguments = parser.parse_args()
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # so that what was started is ended
  options = (['--quick'] if arguments.quick else []) + (['--only', *arguments.only] if arguments.only else [])
  results = {}
  for name in arguments.setups:
    print(f'--- {name}: {setups.SETUPS[name].__doc__}', file=sys.stderr, flush=True)
    results[name] = setups.SETUPS[name](options)
  if arguments.json:
    with open(arguments.json, 'w', encoding='utf-8') as f:
      json.dump(results, f, indent=1)
  medians = {s: {n: statistics.median(v) for n, v in r.items() if v} for s, r in results.items()}
  print(table(medians))
  failed = [f'{s}: {n}' for s, r in results.items() for n, v in r.items() if not v]
  if failed:
    print('failed: ' + ', '.join(failed), file=sys.stderr)
  return 1 if failed else 0


if __name__ == '__main__':
  sys.exit(main())
