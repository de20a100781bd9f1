// Everything that belongs to one worker id: PJRT clients, collectives engine, peers, connected controllers.
//
// When the resource manager gives this process another id, the cluster has given the earlier one up for lost; its
// Incarnation is then ended and a new one begun, with empty memory. Thread-safe.
#ifndef OPENPATHWAYS_WORKER_INCARNATION_H_
#define OPENPATHWAYS_WORKER_INCARNATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "pjrt/pjrt.h"
#include "transport/transport.h"
#include "worker/session.h"

namespace openpathways::worker {

// What a worker is within its cluster.
struct Identity {
  WorkerId worker_id = 0;
  int slice = 0;
  int host = 0;
  int num_devices = 0;    // to provide; 0: as many as the plugin has
  int process_index = 0;  // unique among the cluster's live workers
};

class Incarnation : public std::enable_shared_from_this<Incarnation> {
 public:
  // `transport` and `pool` outlive it. Errors are the plugin's.
  static absl::StatusOr<std::shared_ptr<Incarnation>> Create(const Identity& identity,
                                                             std::shared_ptr<pjrt::Plugin> plugin,
                                                             transport::Transport* transport, ThreadPool* pool,
                                                             std::shared_ptr<Stats> stats);
  ~Incarnation();

  const Identity& identity() const { return identity_; }
  const ClientPool& clients() const { return *resources_.clients; }

  // Serves a controller whose Hello has come. ALREADY_EXISTS while another connection has the same id.
  absl::StatusOr<std::shared_ptr<Session>> AddController(uint64_t controller, transport::ConnectionRef connection);

  // A message from another worker, and the end of its connection.
  absl::Status OnPeerMessage(WorkerId peer, transport::Message message);
  void OnPeerClosed(WorkerId peer, const absl::Status& status);

  // Closes all connections and waits until everything that controllers named is freed. Not on the I/O thread.
  void End();

 private:
  Incarnation(const Identity& identity, transport::Transport* transport, ThreadPool* pool,
              std::shared_ptr<Stats> stats);
  void SessionEnded(uint64_t controller);
  void DestroyEndedSessions();

  const Identity identity_;
  transport::Transport* const transport_;
  ThreadPool* const pool_;
  SessionResources resources_;

  struct Controller {
    std::shared_ptr<Session> session;
    transport::ConnectionRef connection;
  };
  absl::Mutex mu_;
  absl::flat_hash_map<uint64_t, Controller> controllers_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Session>> ended_sessions_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_INCARNATION_H_
