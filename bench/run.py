"""Measures the set-ups one after the other and prints a Markdown table. See README.md."""
import argparse
import json
import os
import signal
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import bars
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
  lines = ['| | ours | one process | multi-controller | ours / one | ours / multi | bar | reached |', '|---|---:|---:|---:|---:|---:|---|---|']
  for name in measurements.MEASUREMENTS:
    ours, one, multi = (medians.get(s, {}).get(name) for s in ('ours', 'one', 'multi'))
    if ours is one is multi is None:
      continue
    lines.append('| ' + ' | '.join([measurements.MEASUREMENTS[name][0], show(ours), show(one), show(multi), ratio(ours, one),
                                    ratio(ours, multi), *bars.verdict(name, medians)]) + ' |')
  return '\n'.join(lines)


def baselines(machine):
  """What the machine moves without us, on which some bars stand."""
  lines = [f'| {bars.BASELINE_MIB} MiB without us | time | GB/s |', '|---|---:|---:|']
  for name, seconds in sorted(machine.items()):
    lines.append(f'| {name} | {show(seconds)} | {bars.BASELINE_MIB * bars.MIB / seconds / 1e9:.1f} |')
  return '\n'.join(lines)


def names_for(setup, wanted):
  """In the order in which they are measured. Compiling comes first: the same program must not have been compiled before."""
  first = ['compile', 'compile-again']
  names = first + [n for n in measurements.MEASUREMENTS if n not in first]
  return [n for n in names if (not wanted or n in wanted) and (setup == 'ours' or n not in measurements.OURS_ONLY)]


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--quick', action='store_true', help='fewer repetitions')
  parser.add_argument('--only', nargs='+', choices=measurements.MEASUREMENTS, help='these measurements')
  parser.add_argument('--setups', nargs='+', choices=setups.SETUPS, default=list(setups.SETUPS))
  parser.add_argument('--json', help='write all numbers to this file')
  arguments = parser.parse_args()
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # so that what was started is ended
  results = {}
  for name in arguments.setups:
    print(f'--- {name}: {setups.SETUPS[name].__doc__}', file=sys.stderr, flush=True)
    results[name] = setups.SETUPS[name](names_for(name, arguments.only), arguments.quick)
  if arguments.json:
    with open(arguments.json, 'w', encoding='utf-8') as f:
      json.dump(results, f, indent=1)
  medians = {s: {n: statistics.median(v) for n, v in r.items() if v} for s, r in results.items()}
  print(table(medians))
  if 'machine' in medians:
    print('\n' + baselines(medians['machine']))
  failed = [f'{s}: {n}' for s, r in results.items() for n, v in r.items() if not v]
  if failed:
    print('failed: ' + ', '.join(failed), file=sys.stderr)
  return 1 if failed else 0


if __name__ == '__main__':
  sys.exit(main())
