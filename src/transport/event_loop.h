// The I/O thread: waits for sockets (epoll), timers and posted tasks, and runs their code one at a time.
//
// Thread-safe only where said so; everything else is for the loop's own thread.
#ifndef OPENPATHWAYS_TRANSPORT_EVENT_LOOP_H_
#define OPENPATHWAYS_TRANSPORT_EVENT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // `events` as epoll reports them, edge-triggered: read or write until the socket would block, or call Again.
  virtual void OnEvents(uint32_t events) = 0;
};

class EventLoop {
 public:
  using Task = absl::AnyInvocable<void()>;
  using WatchId = uint64_t;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  // REQUIRES: Join has returned.
  ~EventLoop() = default;

  // Runs `task` on the loop's thread, in the order of the calls. False, and `task` is left as it was, if the loop has
  // ended. Thread-safe.
  bool Post(Task&& task);

  // Runs `task` on the loop's thread after `delay`; dropped if the loop ends before.
  void After(absl::Duration delay, Task task);

  // Reports readability and hang-up of `fd` to `handler`, which is kept alive until Unwatch or the loop's end.
  absl::StatusOr<WatchId> Watch(int fd, std::shared_ptr<EventHandler> handler);
  // Also reports writability, or stops to. Thread-safe; `fd` must be open and watched under `id`.
  void SetWantWrite(int fd, WatchId id, bool want_write);
  // REQUIRES: `fd` is still open.
  void Unwatch(int fd, WatchId id);
  // Calls the handler again with `events` after all others had their turn.
  void Again(WatchId id, uint32_t events);

  // Ends the loop after the tasks that are already posted.
  void Stop();
  // Waits for the thread. Thread-safe, but not from the loop's thread.
  void Join();

 private:
  EventLoop(UniqueFd epoll, UniqueFd wakeup) : epoll_(std::move(epoll)), wakeup_(std::move(wakeup)) {}
  void Run();
  void WaitAndDispatch();
  void Dispatch(WatchId id, uint32_t events);
  void RunPosted();
  void RunTimers();
  void End();
  int WaitMillis();

  const UniqueFd epoll_;
  const UniqueFd wakeup_;
  std::thread thread_;

  std::mutex mu_;
  // Guarded by mu_:
  std::vector<Task> posted_;
  bool awake_ = false;  // a wake-up is under way, or the loop will look at posted_ anyway
  bool ended_ = false;

  // Only the loop's thread:
  bool stop_ = false;
  WatchId next_id_ = 1;  // 0 is the wake-up descriptor
  absl::flat_hash_map<WatchId, std::shared_ptr<EventHandler>> handlers_;
  std::vector<std::pair<WatchId, uint32_t>> again_;
  std::multimap<absl::Time, Task> timers_;
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_EVENT_LOOP_H_
