// One incarnation of a worker as the controller sees it: a place in the cluster (slice and host), the one ordered
// stream of commands to it, and the requests that it has yet to answer.
//
// Life: waiting (nothing has ever held the place; commands are kept in order) -> connecting (commands are still kept)
// -> ready -> lost. A lost worker stays lost: what replaces it is another Worker, and the buffers and executables that
// this one held are gone. Commands to a lost worker are dropped; requests to it are answered at once, with DATA_LOSS
// "slice S host H (ADDRESS) is lost: WHY".
//
// Thread-safe. Callbacks run without any lock held, on the transport's I/O thread or on the thread that found out,
// which may be the caller's.
#ifndef OPENPATHWAYS_CLUSTER_WORKER_H_
#define OPENPATHWAYS_CLUSTER_WORKER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/transport.h"
#include "worker/worker.pb.h"

namespace openpathways::cluster {

// Answer to a request.
struct Reply {
  int64_t size = 0;          // ReadBuffer
  transport::Buffer data;    // ReadBuffer: inline data
  int64_t device_nanos = 0;  // Execute
};
using ReplyCallback = absl::AnyInvocable<void(absl::StatusOr<Reply>)>;

// Answer to ReadNext.
struct ReadPiece {
  transport::Buffer data;
  bool last = false;
};
using ReadCallback = absl::AnyInvocable<void(absl::StatusOr<ReadPiece>)>;

// A command on its way to a worker.
struct Outgoing {
  worker::Command command;
  transport::Buffer payload;
  // Fills in, just before the command is sent, what may not be known earlier (addresses and device ids of workers).
  absl::AnyInvocable<void(worker::Command&)> complete;
  // If not 0: the number that the command carries as its request; `on_reply` is called exactly once.
  uint64_t request = 0;
  ReplyCallback on_reply;
  int64_t num_result_buffers = 0;  // Execute: how many buffers it makes, from first_result on
  bool donates = false;            // Execute: some of its arguments do not survive it
};

class Worker;
using WorkerRef = std::shared_ptr<Worker>;

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  struct Listener {
    std::function<void(const WorkerRef&)> on_ready;  // once, when the worker has answered
    std::function<void(const WorkerRef&)> on_lost;   // once
  };
  Worker(int slice, int host, uint64_t controller_id, Listener listener);
  ~Worker();

  int slice() const { return slice_; }
  int host() const { return host_; }
  std::string name() const;  // "slice 1 host 0"

  // Ends the waiting: a worker has registered for this place. REQUIRES: called at most once.
  void Connect(transport::Transport& transport, uint64_t worker_id, const std::string& address);
  // Declares the worker lost. Idempotent: the first reason counts.
  void Lose(absl::string_view why);
  // As Lose, when the controller itself ends: the listener is not told.
  void Shutdown();

  bool lost() const { return lost_.load(std::memory_order_acquire); }
  absl::Status status() const;  // OK unless lost
  // Whether the worker's identity is known for good: it is ready, or lost.
  bool settled() const { return settled_.load(std::memory_order_acquire); }
  // Whether commands are kept for a worker that is not there yet.
  bool holds_commands() const;
  uint64_t worker_id() const;
  worker::WorkerAddress address() const;           // worker_id 0 while waiting
  std::vector<int64_t> plugin_device_ids() const;  // by ordinal; empty before the worker is ready

  // Puts a command at the end of the stream without sending it (see Flush). False, and `outgoing` is as before, if the
  // worker is lost: then the caller owes outgoing.on_reply the status().
  bool Append(Outgoing& outgoing);
  // Sends what has been appended.
  void Flush();
  // True for the first caller until FlushDue is called, which that caller sees to.
  bool SetDue() { return !due_.exchange(true, std::memory_order_acq_rel); }
  void FlushDue();
  // Append and Flush. A lost worker's status goes to on_reply.
  void Send(Outgoing outgoing);

  // Deletes a buffer with the next command or FlushDeletes, whichever comes first. True if it is the first one to wait:
  // the caller then sees to it that FlushDeletes is called soon.
  bool Delete(uint64_t buffer);
  void FlushDeletes();

  // Calls `callback` once the bytes on their way to the worker (waiting here or in the connection) are at most `limit`,
  // or the worker is lost.
  void OnQueueBelow(size_t limit, absl::AnyInvocable<void()> callback);

  // Fetches the next piece of the data that an answered ReadBuffer has pinned. Several may be on their way: they come
  // in the order of the calls. Nothing may be asked for after the last byte.
  void ReadNext(uint64_t request, int64_t size, ReadCallback callback);
  void ReadCancel(uint64_t request);

 private:
  enum class State { kWaiting, kConnecting, kReady, kLost };
  struct BelowWaiter {
    size_t limit;
    absl::AnyInvocable<void()> callback;
  };

  void OnMessage(transport::Message message);
  void OnWelcome(const worker::Welcome& welcome);
  void OnReply(const worker::Reply& reply, transport::Buffer payload);
  void OnReadData(const worker::ReadData& data, transport::Buffer payload);
  void EnterLost(absl::string_view why, bool tell_listener);
  void TakeDeletes();  // REQUIRES: mu_ is held
  // Waiters whose time has come; those that only the connection can answer are handed on to it. REQUIRES: mu_ is held.
  std::vector<absl::AnyInvocable<void()>> TakeBelowWaiters();

  const int slice_;
  const int host_;
  const uint64_t controller_id_;
  const Listener listener_;
  std::atomic<bool> lost_ = false;
  std::atomic<bool> settled_ = false;
  std::atomic<bool> due_ = false;

  mutable std::mutex mu_;  // guards what follows
  State state_ = State::kWaiting;
  absl::Status lost_status_;
  worker::WorkerAddress address_;
  std::vector<int64_t> plugin_device_ids_;
  transport::ConnectionRef connection_;
  std::vector<Outgoing> queue_;
  size_t queued_bytes_ = 0;  // payloads in queue_ or being handed to the connection
  bool flushing_ = false;    // some thread is in Flush and will take all of queue_
  std::vector<uint64_t> deletes_;
  std::vector<BelowWaiter> below_waiters_;
  absl::flat_hash_map<uint64_t, ReplyCallback> requests_;
  absl::flat_hash_map<uint64_t, std::deque<ReadCallback>> reads_;  // none is empty
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_WORKER_H_
