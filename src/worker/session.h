// One connected controller: its names, and the thread that carries out its commands in order.
//
// Everything that a controller names belongs to its Session and dies with it. Commands only bind names and start
// things; what has to wait waits in futures. The command thread alone touches the tables, so they need no lock.
#ifndef OPENPATHWAYS_WORKER_SESSION_H_
#define OPENPATHWAYS_WORKER_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "pjrt/pjrt.h"
#include "transport/transport.h"
#include "worker/client_pool.h"
#include "worker/executor.h"
#include "worker/host_transfer.h"
#include "worker/incoming_transfers.h"
#include "worker/launch.h"
#include "worker/named_buffer.h"
#include "worker/peers.h"
#include "worker/program.h"
#include "worker/stats.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

// What sessions share.
struct SessionResources {
  WorkerId worker_id = 0;
  transport::Arena* arena = nullptr;  // the process's; outlives all sessions
  std::shared_ptr<ClientPool> clients;
  std::shared_ptr<collectives::Engine> engine;
  std::shared_ptr<Peers> peers;
  std::shared_ptr<IncomingTransfers> incoming;
  ThreadPool* pool = nullptr;  // outlives all sessions
  std::shared_ptr<Stats> stats;
};

// Thread-safe.
class Session {
 public:
  // `on_ended` runs once, on the command thread, when all names are gone: the session may then be destroyed, though not
  // on that thread.
  Session(SessionResources resources, uint64_t controller, transport::ConnectionRef connection,
          std::function<void()> on_ended);
  ~Session();  // waits for the command thread

  uint64_t controller() const { return controller_; }

  // A message of the controller. Does not block. One that is no command, or that breaks the protocol, closes the
  // connection.
  void OnMessage(transport::Message message);

  // The connection is closed: frees everything that the controller named. Idempotent.
  void End();

 private:
  class Read;

  void Begin();
  void Run(const Command& command, transport::Buffer payload);
  absl::Status Dispatch(const Command& command, transport::Buffer payload);
  void FreeAll();

  // Errors of these are breaches of the protocol. Everything else becomes the error of a buffer or a reply.
  absl::Status Do(const BeginHostTransfer& command);
  absl::Status Do(const HostTransferData& command, transport::Buffer payload);
  absl::Status Do(const AbortHostTransfer& command);
  absl::Status Do(const CopyBuffers& command);
  absl::Status Do(const SendBuffers& command);
  absl::Status Do(const ReceiveBuffers& command);
  absl::Status Do(const MakeErrorBuffers& command);
  absl::Status Do(const DeleteBuffers& command);
  absl::Status Do(const LoadExecutable& command, transport::Buffer payload);
  absl::Status Do(const UnloadExecutable& command);
  absl::Status Do(const Execute& command);
  absl::Status Do(const Await& command);
  absl::Status Do(const ReadBuffer& command);
  absl::Status Do(const ReadNext& command);
  absl::Status Do(const ReadCancel& command);
  absl::Status Do(const PeerLost& command);
  absl::Status Do(const MoveBoxes& command);
  absl::Status Do(const BitcastBuffers& command);

  void Break(const absl::Status& status);

  // The buffer of a target, pending; or already failed if the target's device or memory does not exist (its device is
  // then nullptr).
  absl::StatusOr<TargetBuffer> MakeTarget(const Target& target);
  void Receive(const ReceiveBuffers::Receive& receive, WorkerId from, const TargetBuffer& target);
  void SendBox(const MoveBoxes::Send& send, WorkerId destination);
  absl::Status Compose(const MoveBoxes::Composition& what, const MoveBoxes& command);
  void PutTogether(const MoveBoxes::Composition& what, const MoveBoxes& command,
                   const std::vector<TargetBuffer>& targets, const std::vector<PinRef>& sources);

  const SessionResources resources_;
  const uint64_t controller_;
  const transport::ConnectionRef connection_;
  const std::function<void()> on_ended_;

  // Command thread only.
  std::shared_ptr<pjrt::Client> client_;
  BufferTable buffers_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<HostTransfer>> host_transfers_;
  absl::flat_hash_map<uint64_t, ProgramRef> programs_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Read>> reads_;
  std::unique_ptr<LaunchQueue> launches_;
  bool broken_ = false;  // the controller broke the protocol, or is gone
  bool freed_ = false;

  const std::shared_ptr<SerialExecutor> executor_;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_SESSION_H_
