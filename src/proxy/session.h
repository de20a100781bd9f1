// One client session: its tables of handles, and the requests that it answers.
//
// Requests arrive one at a time, in the client's order, and none may wait: a handler does what changes the tables
// before it returns, and leaves the rest to callbacks of ifrt's futures. Responses may leave in any order, from any
// thread.
#ifndef OPENPATHWAYS_PROXY_SESSION_H_
#define OPENPATHWAYS_PROXY_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/future.h"
#include "ifrt/backend.h"
#include "proxy/handle_table.h"
#include "proxy/host_buffer_table.h"
#include "proxy/launch_window.h"
#include "proxy/protos/ifrt_session.pb.h"
#include "proxy/user_context.h"

namespace openpathways::proxy {

// The messages of the protocol.
namespace wire = ::xla::ifrt::proxy;

// What an array handle stands for. A handle whose array could not be made stands for the error.
struct ArrayEntry {
  absl::StatusOr<ifrt::ArrayRef> array;
  UserContextRef context;  // whose work is to blame if the array turns out to have failed
};
using ArrayEntryRef = std::shared_ptr<const ArrayEntry>;

struct FutureEntry {
  Future<> future;
  UserContextRef context;
  bool is_deletion = false;  // made by DeleteArray: its CheckFuture is not counted (see Counting)
  // Of an execution; see ifrt::ExecuteResult.
  std::shared_ptr<const std::atomic<int64_t>> device_nanos = nullptr;
};
using FutureEntryRef = std::shared_ptr<const FutureEntry>;

// The client frees what responses report as destroyed when it has seen all smaller sequence numbers. It never looks at
// those of some responses, which therefore must not take one.
enum class Counting { kCounted, kNotCounted };

// Whether somebody may be waiting for a response. Those that nobody waits for are collected for some milliseconds and
// let the others overtake them.
enum class Urgency { kNow, kSoon };

class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Options {
    uint64_t id = 0;
    int protocol_version = 0;
    ifrt::Backend* backend = nullptr;  // outlives the session
    // Sends one response; called one at a time, must not block. Never called once Close has returned.
    std::function<void(xla::ifrt::proxy::IfrtResponse, Urgency)> send;
  };
  explicit Session(Options options);
  ~Session();

  // Takes the next request. Called by one thread at a time.
  void Handle(const xla::ifrt::proxy::IfrtRequest& request);

  // Forgets everything that the client made. Idempotent.
  void Close();

  uint64_t id() const { return options_.id; }
  int protocol_version() const { return options_.protocol_version; }
  ifrt::Backend& backend() const { return *options_.backend; }
  const std::shared_ptr<HostBufferTable>& host_buffers() const { return host_buffers_; }
  const std::shared_ptr<LaunchWindow>& launch_window() const { return launch_window_; }

  // FAILED_PRECONDITION until Init has been answered.
  absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>> device_ids() const;
  void set_device_ids(std::shared_ptr<const ifrt::DeviceIds> ids);
  // False for every call but the first.
  bool BeginInit() { return !init_begun_.exchange(true); }

  uint64_t NewHandle() { return next_handle_.fetch_add(1, std::memory_order_relaxed); }
  HandleTable<ArrayEntryRef>& arrays() { return arrays_; }
  HandleTable<ifrt::LoadedExecutableRef>& executables() { return executables_; }
  HandleTable<FutureEntryRef>& futures() { return futures_; }
  // Of executions. Clients before protocol 21 look for them among the futures.
  HandleTable<FutureEntryRef>& statuses() { return protocol_version() < 21 ? futures_ : statuses_; }

  const std::shared_ptr<DestroyedContexts>& destroyed_contexts() const { return destroyed_contexts_; }

  // For Call. `status` not OK: `response` has no body.
  void Send(uint64_t op_id, const absl::Status& status, xla::ifrt::proxy::IfrtResponse response, Counting counting,
            Urgency urgency = Urgency::kNow);

 private:
  const Options options_;
  const std::shared_ptr<HostBufferTable> host_buffers_;
  const std::shared_ptr<LaunchWindow> launch_window_ = std::make_shared<LaunchWindow>();
  const std::shared_ptr<DestroyedContexts> destroyed_contexts_ = std::make_shared<DestroyedContexts>();
  std::atomic<bool> init_begun_{false};
  std::atomic<uint64_t> next_handle_{kFirstServerHandle};

  HandleTable<ArrayEntryRef> arrays_{"array"};
  HandleTable<ifrt::LoadedExecutableRef> executables_{"loaded executable"};
  HandleTable<FutureEntryRef> futures_{"future"};
  HandleTable<FutureEntryRef> statuses_{"execution status"};

  mutable absl::Mutex mu_;
  std::shared_ptr<const ifrt::DeviceIds> device_ids_ ABSL_GUARDED_BY(mu_);

  absl::Mutex send_mu_;  // held while sending, so that responses leave in the order of their numbers
  bool closed_ ABSL_GUARDED_BY(send_mu_) = false;
  int64_t next_seq_num_ ABSL_GUARDED_BY(send_mu_) = 0;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_SESSION_H_
