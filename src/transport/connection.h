// A connection over a stream socket: TCP, or a Unix socket over which memory segments are shared.
//
// Life: connecting (messages wait) -> open -> lingering (reported as closed) -> dead. A lingering connection delivers
// and takes no more messages; it lives on only while one side still reads memory of the other in place, so that this
// memory is not reused under the reader's eyes, and to let what was sent last arrive. See frame.h for the rule.
//
// Threads: Send writes on the caller's thread if nothing is queued. Whoever sets `writing_` owns `batch_` and may write
// to the socket without the lock, so a slow system call holds up nobody; the others only append to `queue_`. Reading,
// the callbacks and changes of phase are the I/O thread's. No callback runs, and no buffer is destroyed, with the lock
// held.
#ifndef OPENPATHWAYS_TRANSPORT_CONNECTION_H_
#define OPENPATHWAYS_TRANSPORT_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "transport/arena.h"
#include "transport/event_loop.h"
#include "transport/frame_reader.h"
#include "transport/frame_writer.h"
#include "transport/mapped_segment.h"
#include "transport/transport.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

class SocketConnection;

// What the connections of one Transport share.
struct IoContext {
  std::shared_ptr<EventLoop> loop;
  std::shared_ptr<SharedArena> arena;
  bool shared_memory = true;
  // Only the I/O thread:
  absl::flat_hash_set<std::shared_ptr<SocketConnection>> connections;  // not dead yet
  bool draining = false;                                               // the Transport is being destroyed
};

class SocketConnection final : public Connection,
                               public EventHandler,
                               public SegmentListener,
                               public std::enable_shared_from_this<SocketConnection> {
 public:
  SocketConnection(std::shared_ptr<IoContext> io, std::string peer);
  ~SocketConnection() override = default;

  // Connection. Thread-safe.
  void Send(std::string header, Buffer payload) override;
  void SendAll(std::vector<Message> messages) override;
  size_t queued_bytes() const override;
  void OnQueueBelow(size_t limit, absl::AnyInvocable<void()> callback) override;
  void Close() override;
  bool is_shared_memory() const override;
  std::string peer() const override;

  // SegmentListener. Thread-safe.
  void OnSegmentFreed(uint64_t segment_id) override;

  // The rest is for the I/O thread.

  // Must come first. Returns false, having reported the connection as closed, if the Transport is being destroyed.
  bool Register(ConnectionCallbacks callbacks);
  // The socket has passed the handshake. `make_callbacks`, if any, is called before the first message is read.
  using MakeCallbacks = std::function<ConnectionCallbacks(ConnectionRef)>;
  void Open(UniqueFd fd, std::string peer, const MakeCallbacks& make_callbacks);
  // There will be no socket.
  void FailToOpen(const absl::Status& status);
  // The Transport ends (IoContext::draining): Close, and linger only as long as that makes sense.
  void Drain();
  // The Transport's time is up: report the connection as closed, if that has not happened, and let go of everything.
  void Abandon();

  void OnEvents(uint32_t events) override;

 private:
  enum class Phase { kConnecting, kOpen, kLingering, kDead };
  using Callbacks = std::vector<absl::AnyInvocable<void()>>;
  using Loans = absl::flat_hash_map<uint64_t, Buffer>;
  struct Watcher {
    size_t limit;
    absl::AnyInvocable<void()> callback;
  };
  class Borrow;

  // Sending, with mu_ held:
  bool Take(std::string& header, Buffer& payload);
  void Enqueue(std::string header, Buffer payload);
  bool TryShare(OutgoingFrame& frame, const Buffer& payload);
  void EnqueueControl(FramePrefix prefix);
  void Push(OutgoingFrame frame);
  bool StartWriting();
  void WriteBatches(std::deque<OutgoingFrame>& finished, Callbacks& ready);
  void OnWriteError(int error);
  void Unqueue(size_t bytes, Callbacks& ready);
  // Sending, without:
  void Write();
  void OnBroken(int error);
  void ContinueWriting();
  void RejectMessage(size_t header_size, size_t payload_size);
  void RunOnLoop(Callbacks callbacks);

  // Receiving.
  bool Read();
  bool ReadLater();
  void OnReadError(const absl::Status& status);
  absl::Status Handle(Frame frame);
  absl::Status HandleMessage(Frame frame);
  absl::StatusOr<Buffer> BorrowPayload(const FramePrefix& prefix);
  absl::Status HandleSegment(Frame frame);
  absl::Status HandleRelease(uint64_t loan);
  void ReturnLoan(uint64_t loan);  // any thread

  // Closing.
  void Finish(const absl::Status& status);
  void EndLingering();
  void Die(bool peer_gone);
  absl::Status Lost(absl::string_view why) const;

  const std::shared_ptr<IoContext> io_;

  mutable std::mutex mu_;
  // Guarded by mu_:
  Phase phase_ = Phase::kConnecting;
  std::string peer_;
  UniqueFd fd_;  // open from Open on, until death and nobody writes or borrows
  EventLoop::WatchId watch_ = 0;
  bool shared_memory_ = false;
  bool closing_ = false;       // Close was called
  std::deque<Message> early_;  // sent while connecting
  std::deque<OutgoingFrame> queue_;
  bool writing_ = false;  // somebody owns batch_
  bool blocked_ = false;  // the socket takes no more for now
  bool broken_ = false;   // writing failed
  size_t queued_ = 0;
  std::vector<Watcher> watchers_;
  uint64_t next_loan_ = 1;
  Loans loans_;                               // what the peer reads in place
  absl::flat_hash_set<uint64_t> introduced_;  // segments that the peer knows
  size_t borrowed_ = 0;                       // buffers here that read the peer's memory

  std::deque<OutgoingFrame> batch_;  // owned by who set writing_

  // Only the I/O thread:
  ConnectionCallbacks callbacks_;
  bool reported_closed_ = false;
  bool peer_said_goodbye_ = false;
  bool linger_time_over_ = false;
  std::optional<FrameReader> reader_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<MappedSegment>> segments_;  // of the peer
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_CONNECTION_H_
