#include "simulation/simulated_workers.h"

#include <utility>

#include "base/logging.h"
#include "base/status.h"

namespace openpathways::simulation {
namespace {

transport::ConnectionCallbacks Accept(SimulatedHost* host, transport::ConnectionRef connection) {
  struct Accepted {
    std::unique_ptr<SimulatedSession> session;  // null once the connection is closed
  };
  auto accepted = std::make_shared<Accepted>();
  accepted->session = std::make_unique<SimulatedSession>(host, connection);
  transport::ConnectionCallbacks callbacks;
  callbacks.on_message = [accepted, connection](const transport::Message& message) {
    const absl::Status status = accepted->session->OnMessage(message);
    if (status.ok()) return;
    spdlog::error("closing the connection from {}: {}", connection->peer(), status.ToString());
    connection->Close();
  };
  callbacks.on_closed = [accepted](const absl::Status&) { accepted->session.reset(); };
  return callbacks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedWorkers>> SimulatedWorkers::Create(const Options& options) {
  std::unique_ptr<SimulatedWorkers> workers(new SimulatedWorkers());
  ASSIGN_OR_RETURN(workers->transport_, transport::Transport::Create({.shared_memory = options.unix_sockets}));
  for (int i = 0; i < options.num_hosts; ++i) {
    SimulatedHost* host =
        workers->hosts_.emplace_back(std::make_unique<SimulatedHost>(options.launch_time, &workers->later_)).get();
    ASSIGN_OR_RETURN(int port, workers->transport_->Listen(0, [host](transport::ConnectionRef connection) {
      return Accept(host, std::move(connection));
    }));
    workers->ports_.push_back(port);
  }
  return workers;
}

SimulatedWorkers::~SimulatedWorkers() = default;

void SimulatedWorkers::Join(int host, uint64_t worker_id, int num_devices, int64_t first_device_id) {
  SimulatedHost& joining = *hosts_[host];
  joining.num_devices = num_devices;
  joining.first_device_id = first_device_id;
  joining.worker_id.store(worker_id, std::memory_order_release);
}

}  // namespace openpathways::simulation
