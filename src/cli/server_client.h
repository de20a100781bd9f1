// Questions to running servers. Each call blocks for at most `timeout`.
#ifndef OPENPATHWAYS_CLI_SERVER_CLIENT_H_
#define OPENPATHWAYS_CLI_SERVER_CLIENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "resource_manager/resource_manager.pb.h"

namespace openpathways::cli {

// What the resource manager at "host:port" knows. UNAVAILABLE or DEADLINE_EXCEEDED if it does not answer.
absl::StatusOr<resource_manager::ClusterStatus> AskResourceManager(const std::string& address, absl::Duration timeout);

// OK if the gRPC server at "host:port" says by the health protocol that it serves.
absl::Status CheckServing(const std::string& address, absl::Duration timeout);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_SERVER_CLIENT_H_
