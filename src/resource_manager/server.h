// The resource manager as a gRPC server: Membership and DeviceIdAllocator behind the service of resource_manager.proto,
// with the standard health service. Owns its threads; thread-safe.
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_SERVER_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_SERVER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "topology/slice_topology.h"

namespace openpathways::resource_manager {

struct ServerOptions {
  int port = 29001;  // 0: any free one
  std::vector<topology::SliceTopology> slices;
  absl::Duration worker_silence = absl::Seconds(4);  // a worker silent for longer is lost
};

class Server {
 public:
  // Listens on all interfaces, IPv6 and IPv4, or IPv4 alone where the kernel has no IPv6. ALREADY_EXISTS if the port is
  // in use.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options);

  virtual ~Server() = default;  // ends all streams, then stops

  virtual int port() const = 0;
};

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_SERVER_H_
