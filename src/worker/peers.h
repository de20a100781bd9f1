// The other workers that this one has to do with: their addresses, one outgoing connection to each, and which of them
// are lost.
//
// A peer is lost when a connection to or from it breaks, or when a controller says so. That is final: a worker that
// comes back has another id. Thread-safe; calls out without a lock held.
#ifndef OPENPATHWAYS_WORKER_PEERS_H_
#define OPENPATHWAYS_WORKER_PEERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "collectives/engine.h"
#include "transport/transport.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

using collectives::WorkerId;

class Peers final : public collectives::PeerNetwork, public std::enable_shared_from_this<Peers> {
 public:
  // Called once for each lost peer, on any thread.
  using OnLost = std::function<void(WorkerId peer, const absl::Status& status)>;

  // `transport` outlives this object. To be made by std::make_shared.
  Peers(transport::Transport* transport, WorkerId self) : transport_(transport), self_(self) {}

  // REQUIRES: before anything else.
  void SetOnLost(OnLost on_lost) { on_lost_ = std::move(on_lost); }

  // Remembers where a peer is and connects to it, so that its death is noticed even if nothing is ever sent to it.
  void Connect(const WorkerAddress& address);

  // A collective's message. A peer that was never announced by Connect is lost by definition.
  void Send(WorkerId peer, std::string header, transport::Buffer payload) override;
  void SendTransfer(WorkerId peer, const Transfer& transfer, transport::Buffer payload);
  absl::StatusOr<transport::Buffer> Allocate(size_t size) override { return transport_->arena().Allocate(size); }

  // True if payloads for the peer pass through shared memory; false while that is not known yet.
  bool SharesMemory(WorkerId peer);

  // Reports DATA_LOSS "slice 1 host 0 is lost: …", unless `status` is such an error already. The break of a connection
  // from a peer that nobody has named yet is reported when it gets its name, by Connect.
  void MarkLost(WorkerId peer, const absl::Status& status);

  // Closes all connections; losses are no longer reported.
  void Close();

 private:
  struct Peer {
    WorkerAddress address;
    transport::ConnectionRef connection;
    bool reported = false;          // as lost
    absl::Status connection_error;  // of a connection from a peer without a name
  };
  void SendMessage(WorkerId peer, const PeerMessage& message, transport::Buffer payload);

  transport::Transport* const transport_;
  const WorkerId self_;
  OnLost on_lost_;

  absl::Mutex connect_mu_;  // held while a connection is made, so that there is one for each peer; never in callbacks
  absl::Mutex mu_;
  absl::flat_hash_map<WorkerId, Peer> peers_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_PEERS_H_
