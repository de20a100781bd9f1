#include "cli/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/process.h"

namespace openpathways::cli {
namespace {

// A file descriptor of ours, closed with it.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { Close(); }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Fd read, write;
};

absl::StatusOr<Pipe> OpenPipe() {
  std::array<int, 2> fds;
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

struct ForkSpec {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment = {};
  int in = -1, out = -1, err = -1;  // -1: ours
  bool own_group = false;           // out of reach of the terminal's signals
};

// NOT_FOUND if the program does not exist, PERMISSION_DENIED if it cannot be run.
absl::StatusOr<pid_t> Fork(const ForkSpec& spec) {
  const std::optional<std::string> path = FindProgram(spec.argv[0]);
  if (!path.has_value()) return absl::NotFoundError(absl::StrCat("there is no program called ", spec.argv[0]));
  // All memory is allocated before the fork: another thread may hold the allocator's lock.
  std::vector<std::string> argv = spec.argv, environment = EnvironmentWith(spec.environment);
  const std::vector<char*> argv_pointers = Pointers(argv), environment_pointers = Pointers(environment);
  ASSIGN_OR_RETURN(Pipe failure, OpenPipe());  // carries errno if exec fails, end of file if it does not
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);  // it died before the line above
    if (spec.own_group) setpgid(0, 0);
    if (spec.in >= 0) dup2(spec.in, STDIN_FILENO);
    if (spec.out >= 0) dup2(spec.out, STDOUT_FILENO);
    if (spec.err >= 0) dup2(spec.err, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
    execve(path->c_str(), argv_pointers.data(), environment_pointers.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(failure.write.get(), &error, sizeof(error));
    _exit(127);
  }
  failure.write.Close();
  int error = 0;
  ssize_t n;
  while ((n = read(failure.read.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (n != sizeof(error)) return pid;
  waitpid(pid, nullptr, 0);
  return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", *path));
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return ExitCode(status);
}

// Appends what there is to read. False at the end of the file.
bool ReadSome(int fd, std::string* text) {
  char buffer[1 << 16];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) text->append(buffer, n);
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

// The foreground program, for the signal handler.
volatile pid_t foreground = 0;

void PassOn(int number, siginfo_t* info, void*) {
  // The terminal's signals have reached the program already: it is in our process group.
  if (info->si_code <= 0 && foreground > 0) kill(foreground, number);
}

}  // namespace

std::optional<std::string> FindProgram(const std::string& name) {
  if (absl::StrContains(name, '/')) {
    if (access(name.c_str(), F_OK) == 0) return name;
    return std::nullopt;
  }
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const std::function<bool()>& cancelled) {
  ASSIGN_OR_RETURN(Pipe in, OpenPipe());
  ASSIGN_OR_RETURN(Pipe out, OpenPipe());
  ASSIGN_OR_RETURN(Pipe err, OpenPipe());
  ASSIGN_OR_RETURN(const pid_t pid,
                   Fork({.argv = argv, .in = in.read.get(), .out = out.write.get(), .err = err.write.get()}));
  in.read.Close();
  out.write.Close();
  err.write.Close();
  fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  // A child that does not read its input must not end us.
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);

  ChildResult result;
  bool was_cancelled = false;
  while (out.read.get() >= 0 || err.read.get() >= 0) {
    if (input.empty()) in.write.Close();
    std::array<pollfd, 3> fds = {
        {{in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    constexpr int kPollMs = 100;
    poll(fds.data(), fds.size(), kPollMs);  // EINTR and time-out: nothing has happened
    if (cancelled()) {
      was_cancelled = true;
      kill(pid, SIGTERM);
      break;
    }
    if (fds[0].revents != 0) {
      const ssize_t n = write(in.write.get(), input.data(), input.size());
      if (n > 0) {
        input.remove_prefix(n);
      } else if (errno != EAGAIN && errno != EINTR) {
        input = {};
      }
    }
    if (fds[1].revents != 0 && !ReadSome(out.read.get(), &result.out)) out.read.Close();
    if (fds[2].revents != 0 && !ReadSome(err.read.get(), &result.err)) err.read.Close();
  }
  sigaction(SIGPIPE, &before, nullptr);
  result.exit_code = WaitFor(pid);
  if (was_cancelled || cancelled()) return absl::CancelledError("interrupted");
  return result;
}

int RunInForeground(const std::vector<std::string>& argv,
                    const std::vector<std::pair<std::string, std::string>>& environment) {
  const std::array<int, 3> signals = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction pass_on = {};
  pass_on.sa_sigaction = PassOn;
  pass_on.sa_flags = SA_SIGINFO | SA_RESTART;
  std::array<struct sigaction, 3> before = {};
  // Held back until there is a program to pass them on to.
  sigset_t held;
  sigemptyset(&held);
  for (size_t i = 0; i < signals.size(); ++i) {
    sigaddset(&held, signals[i]);
    sigaction(signals[i], &pass_on, &before[i]);
  }
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
  const absl::StatusOr<pid_t> pid = Fork({.argv = argv, .environment = environment});
  foreground = pid.value_or(0);
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
  int code = absl::IsNotFound(pid.status()) ? 127 : 126;
  if (pid.ok()) {
    code = WaitFor(*pid);
  } else {
    std::fprintf(stderr, "pathways: %s\n", std::string(pid.status().message()).c_str());
  }
  foreground = 0;
  for (size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before[i], nullptr);
  return code;
}

bool LineReader::Read(int fd, const std::function<void(const std::string& line)>& on_line) {
  const bool more = ReadSome(fd, &unfinished_);
  for (size_t end; (end = unfinished_.find('\n')) != std::string::npos; unfinished_.erase(0, end + 1))
    on_line(unfinished_.substr(0, end));
  return more;
}

absl::StatusOr<BackgroundChild> BackgroundChild::Start(const std::vector<std::string>& argv) {
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSIGN_OR_RETURN(Pipe output, OpenPipe());
  ASSIGN_OR_RETURN(const pid_t pid, Fork({.argv = argv,
                                          .in = nothing.get(),
                                          .out = output.write.get(),
                                          .err = output.write.get(),
                                          .own_group = true}));
  return BackgroundChild(pid, output.read.Release());
}

BackgroundChild& BackgroundChild::operator=(BackgroundChild&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_fd_, other.output_fd_);
  return *this;
}

int BackgroundChild::Wait() { return WaitFor(std::exchange(pid_, 0)); }

void BackgroundChild::End() {
  if (output_fd_ >= 0) close(std::exchange(output_fd_, -1));
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  for (int i = 0; i < 100; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) {
      pid_ = 0;
      return;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  kill(pid_, SIGKILL);
  Wait();
}

}  // namespace openpathways::cli
