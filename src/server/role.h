// Pathways' image `server` is the resource manager and the worker, told apart by an argument.
#ifndef OPENPATHWAYS_SERVER_ROLE_H_
#define OPENPATHWAYS_SERVER_ROLE_H_

#include <string>

#include "absl/status/statusor.h"

namespace openpathways::server {

// Name of the binary that the arguments ask for: `--node_type=resource_manager`, or none for a worker; in all spellings
// that FlagSet takes, the last one counts. INVALID_ARGUMENT for any other node type.
absl::StatusOr<std::string> BinaryForArguments(int argc, const char* const* argv);

}  // namespace openpathways::server

#endif  // OPENPATHWAYS_SERVER_ROLE_H_
