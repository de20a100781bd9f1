// Where the resource manager is, for manifests that name it by an environment variable.
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_ADDRESS_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_ADDRESS_H_

#include <string>

namespace openpathways::resource_manager {

// `--resource_manager_address` as manifests give it, as HOST:PORT. An unexpanded "$(NAME):port" or an empty host falls
// back to the environment (NAME, then PATHWAYS_HEAD, then HOST_ADDRESS), then to localhost, with a warning in the log.
// The port defaults to 29001.
std::string ResolveResourceManagerAddress(const std::string& flag_value);

// "HOST" or "HOST:PORT" as HOST:PORT. An IPv6 address may come without its brackets if it has no port.
std::string WithPort(const std::string& host, int default_port);

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_ADDRESS_H_
