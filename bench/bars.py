"""What the numbers are held against. A bar is (text, judge): judge(name, medians) gives how far the measurement is, as a number, and
whether that is enough; medians: {set-up: {measurement: seconds}}. It raises KeyError if something it needs was not measured.
"""
import operator

MIB = 1 << 20
BASELINE_MIB = 256  # what setups.machine moves


def _compare(text, value_of, ok, limit):
  def judge(name, medians):
    value = value_of(name, medians)
    return value, ok(value, limit)
  return text, judge


def times(limit, setup):
  """At most so many times the time of another set-up."""
  return _compare(f'<= {limit} x {setup}', lambda name, m: m['ours'][name] / m[setup][name], operator.le, limit)


def seconds(limit):
  return _compare(f'<= {limit:g} s', lambda name, m: m['ours'][name], operator.le, limit)


def times_own(limit, other):
  """At most so many times the time of another measurement."""
  return _compare(f'<= {limit} x {other}', lambda name, m: m['ours'][name] / m['ours'][other], operator.le, limit)


def share(limit, baseline, mib=BASELINE_MIB):
  """At least this share of the bytes a second that the machine moves in this other way."""
  speed = lambda name, m: m['machine'][baseline] * (mib / BASELINE_MIB) / m['ours'][name]
  return _compare(f'>= {limit} x {baseline}', speed, operator.ge, limit)


BARS = {
    'step-waited': times(1.2, 'one'),
    'step-pipelined': times(0.6, 'one'),
    'psum-chained': times(0.8, 'one'),
    'all-reduce-16M': times(1.2, 'one'),
    'all-gather-1M': times(1.5, 'one'),
    'all-to-all-1M': times(1.5, 'one'),
    'all-gather-16M': times(1.5, 'one'),
    'all-to-all-16M': times(1.5, 'one'),
    'training-step': times(1.0, 'one'),
    'compile': times(1.2, 'one'),
    'compile-again': seconds(0.02),
    'put-one': share(0.8, 'grpc-to-server'),
    'put-sharded': share(0.8, 'grpc-to-server'),
    'put-file': share(0.5, 'memcpy'),
    'get-one': share(0.8, 'grpc-to-client'),
    'get-sharded': share(0.8, 'grpc-to-client'),
    'slice-to-slice': share(0.7, 'shared-memory', mib=128),
    'slice-to-slice-sockets': share(0.8, 'socket-tcp', mib=128),
    'put-1000': times(1.5, 'one'),
    'get-1000': times(1.5, 'one'),
    'step-beside-bulk': times_own(3, 'step-waited'),
    'first-devices': seconds(3),
    'idle': seconds(0.1),
}


def verdict(name, medians):
  """Two cells of the table: the bar, and what is reached."""
  if name not in BARS:
    return '', ''
  text, judge = BARS[name]
  try:
    value, passed = judge(name, medians)
  except KeyError:
    return text, '-'
  return text, f'{value:.3g} {"pass" if passed else "**fail**"}'
