// A gRPC server for health checks without a port of its own: it is given connections that somebody else has accepted.
#ifndef OPENPATHWAYS_SERVING_HEALTH_SERVER_H_
#define OPENPATHWAYS_SERVING_HEALTH_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "serving/health_service.h"

namespace openpathways::serving {

// Thread-safe.
class HealthServer {
 public:
  // `service` must outlive the server.
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(HealthService& service);

  virtual ~HealthServer() = default;  // closes its connections at once

  // Serves a connected socket, which it owns from here on and from which nothing has been read.
  virtual void Serve(int fd) = 0;
};

}  // namespace openpathways::serving

#endif  // OPENPATHWAYS_SERVING_HEALTH_SERVER_H_
