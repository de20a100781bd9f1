"""The transport between hosts, beside a bare TCP stream: two network namespaces, joined by links of different delay and loss.

Prints Markdown tables: throughput of 16 MiB messages and the round trip of a 64-byte one for each link, and how long it takes
until one side knows that the other is gone. Needs root. Takes about two minutes; leaves nothing behind, however it ends.

The link without delay and loss is a veth pair. The others are carried packet by packet by a process (`emulated_link`), as
not every kernel has netem, and netem drops whole offloaded segments of 64 KiB where a network would drop a packet. That
process works on the same processors, so "0 ms, 0 %" over it is what the rows below it compare with.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get('PATHWAYS_BIN', ROOT / 'bin' / 'pathways')).resolve().parent
PORT = 29200
MTU = 8896  # what clouds' networks between accelerator hosts carry
QUEUE_PACKETS = 10000
LONGEST_SECONDS = 60
VETH = None  # instead of (one-way milliseconds, percent of packets lost)
LINKS = [VETH] + [(delay, loss) for delay in (0, 1, 10) for loss in (0, 0.1, 1)]
KINDS = ('transport', 'socket')


def ip(*arguments):
  subprocess.run(['ip', *map(str, arguments)], check=True)


class Network:
  """Two namespaces, client and server, and the link between them."""

  def __init__(self, stack, congestion_control):
    self.stack = stack
    self.congestion_control = congestion_control
    self.client, self.server = (f'pathways-{side}-{os.getpid()}' for side in ('c', 's'))
    self.address = '10.231.0.2'
    for name in (self.client, self.server):
      ip('netns', 'add', name)
      stack.callback(ip, 'netns', 'delete', name)
      ip('-n', name, 'link', 'set', 'lo', 'up')

  def connect(self, link):
    if link is VETH:
      ip('-n', self.client, 'link', 'add', 'link0', 'type', 'veth', 'peer', 'name', 'link0', 'netns', self.server)
    else:
      self.carry(*link)
    for name, address in ((self.client, '10.231.0.1'), (self.server, self.address)):
      ip('-n', name, 'link', 'set', 'link0', 'mtu', MTU, 'txqueuelen', QUEUE_PACKETS, 'up')
      ip('-n', name, 'address', 'add', f'{address}/24', 'dev', 'link0')
      if self.congestion_control:
        ip('-n', name, 'route', 'replace', '10.231.0.0/24', 'dev', 'link0', 'src', address, 'congctl', self.congestion_control)

  def carry(self, delay_ms, loss_percent):
    command = [str(BIN / 'emulated_link'), self.client, self.server, f'--delay-us={delay_ms * 1000}', f'--loss={loss_percent}']
    carrier = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    self.stack.callback(end, carrier)
    wait_for_line(carrier, 'ready')

  def cut(self):
    ip('-n', self.server, 'link', 'set', 'link0', 'down')

  def start(self, namespace, *arguments):
    command = ['ip', 'netns', 'exec', namespace, str(BIN / 'network_bench'), *map(str, arguments), f'--port={PORT}']
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    self.stack.callback(end, process)
    return process

  def serve(self):
    server = self.start(self.server, 'serve')
    wait_for_line(server, 'ready')
    return server


def end(process):
  process.kill()
  process.communicate()


def wait_for_line(process, expected):
  killer = threading.Timer(LONGEST_SECONDS, process.kill)
  killer.start()
  line = process.stdout.readline().strip()
  killer.cancel()
  if line != expected:
    raise RuntimeError(f'{process.args} said "{line}", not "{expected}"')


@contextlib.contextmanager
def network(link, congestion_control):
  with contextlib.ExitStack() as stack:
    result = Network(stack, congestion_control)
    result.connect(link)
    yield result


def result_of(process, seconds=LONGEST_SECONDS):
  """What it printed, or None if that took too long."""
  try:
    output = process.communicate(timeout=seconds)[0]
  except subprocess.TimeoutExpired:
    return None
  if process.returncode != 0:
    raise RuntimeError(f'{process.args} ended with {process.returncode}')
  return json.loads(output)


def speeds(link, options):
  with network(link, options.congestion_control) as net:
    net.serve()
    return {kind: result_of(net.start(net.client, 'measure', kind, net.address, f'--seconds={options.seconds}')) for kind in KINDS}


def speed_row(link, options):
  results = speeds(link, options)
  name = 'veth' if link is VETH else f'{link[0]} ms, {link[1]} %'
  if None in results.values():
    return f'| {name} | took longer than {LONGEST_SECONDS} s |' + ' |' * 5
  ours, bare = (results[kind]['bytes_per_second'] / 1e6 for kind in KINDS)
  ours_us, bare_us = (results[kind]['round_trip_seconds'] * 1e6 for kind in KINDS)
  return (f'| {name} | {ours:.0f} MB/s | {bare:.0f} MB/s | {ours / bare:.2f} '
          f'| {ours_us:.0f} us | {bare_us:.0f} us | {ours_us / bare_us:.2f} |')


def seconds_until_noticed(kind, what, sending, options):
  """From the moment when the peer dies, or the link is cut; and what is reported."""
  with network(VETH, options.congestion_control) as net:
    server = net.serve()
    watcher = net.start(net.client, 'watch', kind, net.address, *(['--sending'] if sending else []))
    wait_for_line(watcher, 'connected')
    time.sleep(0.5)
    start = time.monotonic()
    if what == 'peer killed':
      server.kill()
    else:
      net.cut()
    result = result_of(watcher, options.patience)
    return (result['at'] - start, result['why']) if result else (None, '')


def end_row(what, sending, options):
  cells = []
  why = ''
  for kind in KINDS:
    seconds, said = seconds_until_noticed(kind, what, sending, options)
    cells.append(f'more than {options.patience} s' if seconds is None else f'{seconds * 1e3:.0f} ms')
    why = why or said
  return f'| {what}, {"sending" if sending else "idle"} | {cells[0]} | {cells[1]} | {why} |'


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--seconds', type=float, default=2, help='for the throughput of each end of a row')
  parser.add_argument('--patience', type=float, default=10, help='seconds until a loss counts as not noticed')
  parser.add_argument('--only', choices=('speed', 'end'), help='one of the tables')
  parser.add_argument('--congestion-control', help="TCP's, e.g. cubic or bbr; by default the machine's")
  options = parser.parse_args()
  if os.geteuid() != 0:
    sys.exit('makes network namespaces: run it as root')
  signal.signal(signal.SIGTERM, lambda *_: sys.exit('ended'))  # cleans up, as an interrupt does
  if options.only != 'end':
    print('| link, one way | ours | bare TCP | ours / bare | round trip, ours | bare TCP | ours / bare |\n|---|---:|---:|---:|---:|---:|---:|')
    for link in LINKS:
      print(speed_row(link, options), flush=True)
  if options.only != 'speed':
    print('\n| until it is noticed | ours | bare TCP | what ours says |\n|---|---:|---:|---|')
    for what in ('peer killed', 'link cut'):
      for sending in (False, True):
        print(end_row(what, sending, options), flush=True)


if __name__ == '__main__':
  main()
