#include "transport/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace openpathways::transport {
namespace {

constexpr uint32_t kReadEvents = EPOLLIN | EPOLLRDHUP | EPOLLET;
constexpr EventLoop::WatchId kWakeupId = 0;

epoll_event MakeEvent(uint32_t events, EventLoop::WatchId id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return event;
}

// Signals are for the program's own threads, never for the I/O thread; but for those that report its own faults.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGPROF}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &previous_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wakeup.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot create the descriptors of the I/O thread: ", std::strerror(errno)));
  }
  epoll_event event = MakeEvent(EPOLLIN | EPOLLET, kWakeupId);
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wakeup.get(), &event) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wakeup)));
  BlockSignals blocked;
  loop->thread_ = std::thread([loop = loop.get()] { loop->Run(); });
  pthread_setname_np(loop->thread_.native_handle(), "transport-io");
  return loop;
}

bool EventLoop::Post(Task&& task) {
  std::lock_guard<std::mutex> lock(mu_);
  if (ended_) return false;
  posted_.push_back(std::move(task));
  if (!std::exchange(awake_, true)) {
    const uint64_t one = 1;
    // Can only fail if the counter is full, and then the loop wakes up anyway.
    [[maybe_unused]] ssize_t written = write(wakeup_.get(), &one, sizeof(one));
  }
  return true;
}

void EventLoop::After(absl::Duration delay, Task task) { timers_.emplace(absl::Now() + delay, std::move(task)); }

absl::StatusOr<EventLoop::WatchId> EventLoop::Watch(int fd, std::shared_ptr<EventHandler> handler) {
  const WatchId id = next_id_++;
  epoll_event event = MakeEvent(kReadEvents, id);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  handlers_.emplace(id, std::move(handler));
  return id;
}

void EventLoop::SetWantWrite(int fd, WatchId id, bool want_write) {
  epoll_event event = MakeEvent(want_write ? kReadEvents | EPOLLOUT : kReadEvents, id);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    spdlog::error("epoll_ctl for descriptor {}: {}", fd, std::strerror(errno));
  }
}

void EventLoop::Unwatch(int fd, WatchId id) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(id);
}

void EventLoop::Again(WatchId id, uint32_t events) { again_.emplace_back(id, events); }

void EventLoop::Stop() { stop_ = true; }

void EventLoop::Join() {
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Run() {
  while (!stop_) {
    WaitAndDispatch();
    RunPosted();
    RunTimers();
  }
  End();
}

void EventLoop::WaitAndDispatch() {
  std::vector<std::pair<WatchId, uint32_t>> again;
  again.swap(again_);
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, again.empty() ? WaitMillis() : 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kWakeupId) {
      uint64_t ignored;
      [[maybe_unused]] ssize_t n = read(wakeup_.get(), &ignored, sizeof(ignored));
    } else {
      Dispatch(events[i].data.u64, events[i].events);
    }
  }
  for (const auto& [id, ready] : again) Dispatch(id, ready);
}

void EventLoop::Dispatch(WatchId id, uint32_t events) {
  auto it = handlers_.find(id);
  if (it == handlers_.end()) return;                   // unwatched earlier in this turn
  std::shared_ptr<EventHandler> handler = it->second;  // may unwatch itself
  handler->OnEvents(events);
}

void EventLoop::RunPosted() {
  std::vector<Task> tasks;
  {
    std::lock_guard<std::mutex> lock(mu_);
    tasks.swap(posted_);
    awake_ = false;
  }
  for (Task& task : tasks) task();
}

void EventLoop::RunTimers() {
  const absl::Time now = absl::Now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

int EventLoop::WaitMillis() {
  if (timers_.empty()) return -1;
  // Rounded up: waking up early would spin until the timer is due.
  const int64_t millis = absl::ToInt64Milliseconds(timers_.begin()->first - absl::Now()) + 1;
  return static_cast<int>(std::clamp<int64_t>(millis, 0, 60'000));
}

void EventLoop::End() {
  // Tasks may post others. A program whose tasks post for ever must not keep the loop from ending.
  constexpr int kRounds = 16;
  for (int round = 0; round < kRounds; ++round) RunPosted();
  std::vector<Task> dropped;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ended_ = true;
    dropped.swap(posted_);
  }
  // Destructors of what the tasks and handlers hold may call back in here: empty the members first.
  dropped.clear();
  auto timers = std::exchange(timers_, {});
  auto handlers = std::exchange(handlers_, {});
}

}  // namespace openpathways::transport
