"""A cluster on this machine, started, looked at and ended by the command line, exactly as a person would."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATHWAYS = os.environ.get('PATHWAYS_BIN', str(ROOT / 'bin' / 'pathways'))
SLOW = float(os.environ.get('PATHWAYS_TEST_SLOWDOWN', '1'))  # sanitizer builds: multiplies every time limit


def free_port():
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


def wait_until(condition, seconds, what):
  """Waits for `condition()` to give something true, and returns it."""
  end = time.monotonic() + seconds * SLOW
  while True:
    found = condition()
    if found:
      return found
    if time.monotonic() > end:
      raise AssertionError(f'waited {seconds * SLOW:g} s for: {what}')
    time.sleep(0.05)


class Process:
  """One server process of a cluster, by its pid."""

  def __init__(self, pid, role, slice_index=None, host=None):
    self.pid, self.role, self.slice, self.host = pid, role, slice_index, host

  def __repr__(self):
    return f'{self.role}({self.pid})' if self.slice is None else f'{self.role}({self.pid}, slice {self.slice}, host {self.host})'

  def alive(self):
    try:
      return pathlib.Path(f'/proc/{self.pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
      return False

  def command(self):
    return pathlib.Path(f'/proc/{self.pid}/cmdline').read_text().split('\0')[:-1]

  def kill(self, number=signal.SIGKILL):
    os.kill(self.pid, number)

  def memory(self, key='VmRSS'):
    """Bytes, by a key of /proc/<pid>/status such as VmRSS or RssAnon."""
    text = pathlib.Path(f'/proc/{self.pid}/status').read_text()
    return int(re.search(rf'^{key}:\s+(\d+) kB', text, re.M)[1]) * 1024

  def ports(self):
    """TCP ports that the process listens on."""
    sockets = set()
    for fd in os.listdir(f'/proc/{self.pid}/fd'):
      with contextlib.suppress(OSError):
        sockets.add(os.readlink(f'/proc/{self.pid}/fd/{fd}'))
    found = set()
    for table in ('tcp', 'tcp6'):
      for line in pathlib.Path(f'/proc/{self.pid}/net/{table}').read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == '0A' and f'socket:[{words[9]}]' in sockets:
          found.add(int(words[1].rsplit(':', 1)[1], 16))
    return sorted(found)

  @contextlib.contextmanager
  def watched_memory(self):
    """Yields a list whose only element is the highest private memory (RssAnon, in bytes) since. Shared memory is another
    matter: what a worker lends to the proxy counts in both, but is there once."""
    peak, done = [self.memory('RssAnon')], threading.Event()

    def watch():
      while not done.wait(0.02):
        peak[0] = max(peak[0], self.memory('RssAnon'))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
      yield peak
    finally:
      done.set()
      watcher.join()

  def threads(self):
    return len(os.listdir(f'/proc/{self.pid}/task'))

  def open_files(self):
    return len(os.listdir(f'/proc/{self.pid}/fd'))


class Cluster:
  """Handle of one cluster. Its state lives in `state_home`, so that clusters of a test run never meet the user's own."""

  def __init__(self, state_home, name, slices=2, tpu_type='v5p-16', port=None, extra=()):
    self.state_home, self.name, self.slices, self.tpu_type = pathlib.Path(state_home), name, slices, tpu_type
    self.port = port or free_port()
    self.extra = list(extra)
    self.host, self.client_prefix = '127.0.0.1', []  # where clients find the proxy, and what they are started by

  # The command line ----------------------------------------------------------------------------------------------

  def environment(self):
    env = {k: v for k, v in os.environ.items() if not k.startswith(('JAX_', 'XLA_', 'IFRT_'))}
    env['XDG_STATE_HOME'] = str(self.state_home)
    env['XDG_CACHE_HOME'] = str(self.state_home / 'cache')
    return env

  def up_command(self):
    return [PATHWAYS, 'up', f'--num-slices={self.slices}', f'--tpu-type={self.tpu_type}', f'--name={self.name}',
            f'--port={self.port}', *self.extra]

  def command(self, *args, seconds=60, env=None):
    """Runs `pathways ARGS`; returns the completed process with its output as text."""
    return subprocess.run([PATHWAYS, *args], env={**self.environment(), **(env or {})}, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds * SLOW)

  def up(self):
    done = subprocess.run(self.up_command(), env=self.environment(), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90 * SLOW)
    assert done.returncode == 0, f'{" ".join(self.up_command())} failed ({done.returncode}):\n{done.stdout}\n{self.logs()}'
    return done.stdout

  def down(self):
    return self.command('down', f'--name={self.name}')

  def status(self):
    """What `pathways status --json` says."""
    done = subprocess.run([PATHWAYS, 'status', f'--name={self.name}', '--json'], env=self.environment(), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=30 * SLOW)
    assert done.stdout.strip(), f'pathways status --json said nothing: {done.stderr}'
    return json.loads(done.stdout)

  # Its processes ---------------------------------------------------------------------------------------------------

  def processes(self):
    """The running servers. Found in /proc by the state directory they were started for, not by asking anyone."""
    found = []
    for entry in os.listdir('/proc'):
      if not entry.isdigit():
        continue
      with contextlib.suppress(OSError):
        environ = pathlib.Path(f'/proc/{entry}/environ').read_bytes().split(b'\0')
        if f'XDG_STATE_HOME={self.state_home}'.encode() not in environ:
          continue
        program = pathlib.Path(f'/proc/{entry}/cmdline').read_bytes().decode().split('\0')[0]
        role = re.fullmatch(r'pathways_(\w+)', os.path.basename(program))
        process = role and Process(int(entry), role[1])
        if process and process.alive():
          found.append(process)
    return found

  def slots(self):
    """One entry for each worker that there should be: slice, host, state, pid, buffers, executables..."""
    return self.status()['workers']

  def slot(self, slice_index, host):
    return next(s for s in self.slots() if (s['slice'], s['host']) == (slice_index, host))

  def buffers(self):
    """Buffers that all workers hold, as they last said."""
    return sum(s['buffers'] for s in self.slots())

  def executables(self):
    return sum(s['executables'] for s in self.slots())

  def clients(self):
    return self.status()['proxy']['clients']

  def proxy(self):
    return next(p for p in self.processes() if p.role == 'proxy_server')

  def resource_manager(self):
    return next(p for p in self.processes() if p.role == 'resource_manager')

  def workers(self):
    return [Process(s['pid'], 'worker', s['slice'], s['host']) for s in self.slots()]

  def worker(self, slice_index, host):
    return next(p for p in self.workers() if (p.slice, p.host) == (slice_index, host))

  def logs(self, lines=25):
    """The ends of all log files, for a failing test's message."""
    text = []
    for path in sorted(self.state_home.rglob('*.log')):
      tail = path.read_text(errors='replace').splitlines()[-lines:]
      text += [f'--- {path.name}', *tail]
    return '\n'.join(text)

  def sanitizer_reports(self):
    """What the address or thread sanitizer has said in the log files, from its first line on; nothing in other builds."""
    reports = []
    for path in sorted(self.state_home.rglob('*.log')):
      text = path.read_text(errors='replace')
      found = re.search(r'(ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer)', text)
      if found:
        reports += [f'--- {path.name}', text[found.start():found.start() + 8000]]
    return '\n'.join(reports)
