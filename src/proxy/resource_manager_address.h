// Where the resource manager is, for manifests that name it by an environment variable.
#ifndef OPENPATHWAYS_PROXY_RESOURCE_MANAGER_ADDRESS_H_
#define OPENPATHWAYS_PROXY_RESOURCE_MANAGER_ADDRESS_H_

#include <string>

namespace openpathways::proxy {

// `flag` as HOST:PORT. Manifests give "$(PATHWAYS_HEAD):29001", which Kubernetes replaces only if the variable is
// declared before: `$(NAME)` is looked up here again, then in PATHWAYS_HEAD and HOST_ADDRESS; if there is none of them,
// the host is this one, with a warning. An empty flag is "$(PATHWAYS_HEAD):29001".
std::string ResourceManagerAddress(const std::string& flag);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_RESOURCE_MANAGER_ADDRESS_H_
