// One controller's connection to a simulated worker: keeps account of the names that the controller makes and of when
// each would be ready, and of nothing else.
//
// A launch starts on a device when the ones before it on that device are over, and takes the host's launch time.
// Devices do not wait for each other, as those of a program with a collective would; with launch times that are all
// alike the last device ends at the same time either way. Transfers are taken for done as soon as they begin, and their
// bytes are dropped. What needs bytes (ReadBuffer) is answered with UNIMPLEMENTED, a use of an unknown or failed buffer
// with its error.
//
// Not thread-safe: for the transport's I/O thread.
#ifndef OPENPATHWAYS_SIMULATION_SIMULATED_SESSION_H_
#define OPENPATHWAYS_SIMULATION_SIMULATED_SESSION_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/delayed_tasks.h"
#include "transport/transport.h"
#include "worker/worker.pb.h"

namespace openpathways::simulation {

// A host of the simulation. Its sessions share it.
struct SimulatedHost {
  explicit SimulatedHost(absl::Duration launch_time, DelayedTasks* later) : launch_time(launch_time), later(later) {}

  const absl::Duration launch_time;
  DelayedTasks* const later;  // answers that are not due yet; outlives the host
  // Of the registration; 0 before it. Set last, read first.
  std::atomic<uint64_t> worker_id = 0;
  std::atomic<int> num_devices = 0;
  std::atomic<int64_t> first_device_id = 0;  // in the plugin's numbering; the others follow one by one
  std::vector<absl::Time> free_at;           // by device; I/O thread only
  // For heartbeats.
  std::atomic<int64_t> launches = 0;
  std::atomic<int64_t> buffers = 0;
  std::atomic<int64_t> executables = 0;
};

class SimulatedSession {
 public:
  SimulatedSession(SimulatedHost* host, transport::ConnectionRef connection);
  ~SimulatedSession();

  // The controller's next message, Hello included. An error is a breach of the protocol: the connection must be closed.
  absl::Status OnMessage(const transport::Message& message);

 private:
  // When a buffer is ready, or why it never is.
  using Buffer = absl::StatusOr<absl::Time>;

  absl::Status Greet(const std::string& header);
  absl::Status Dispatch(const worker::Command& command, int64_t payload_size);
  absl::Status Do(const worker::BeginHostTransfer& command);
  absl::Status Do(const worker::HostTransferData& command, int64_t payload_size);
  absl::Status Do(const worker::AbortHostTransfer& command);
  absl::Status Do(const worker::CopyBuffers& command);
  absl::Status Do(const worker::SendBuffers& command);
  absl::Status Do(const worker::ReceiveBuffers& command);
  absl::Status Do(const worker::MoveBoxes& command);
  absl::Status Do(const worker::BitcastBuffers& command);
  absl::Status Do(const worker::MakeErrorBuffers& command);
  absl::Status Do(const worker::DeleteBuffers& command);
  absl::Status Do(const worker::LoadExecutable& command);
  absl::Status Do(const worker::UnloadExecutable& command);
  absl::Status Do(const worker::Execute& command);
  absl::Status Do(const worker::Await& command);
  absl::Status Do(const worker::ReadBuffer& command);
  absl::Status Do(const worker::ReadNext& command);

  absl::Status Make(uint64_t name, Buffer buffer);
  Buffer Find(uint64_t name) const;
  // When `start` has come and the devices are free, for as long as a launch takes. Returns the end.
  absl::Time Occupy(const std::vector<int>& devices, absl::Time start);
  void ReplyWhen(uint64_t request, const Buffer& done);

  SimulatedHost* const host_;
  const transport::ConnectionRef connection_;
  bool greeted_ = false;
  absl::flat_hash_map<uint64_t, Buffer> buffers_;
  absl::flat_hash_map<uint64_t, std::vector<int>> programs_;  // devices of this host, in logical order
  struct Transfer {
    int64_t missing = 0;  // bytes
    std::vector<uint64_t> targets;
  };
  absl::flat_hash_map<uint64_t, Transfer> transfers_;  // that are not complete
};

}  // namespace openpathways::simulation

#endif  // OPENPATHWAYS_SIMULATION_SIMULATED_SESSION_H_
