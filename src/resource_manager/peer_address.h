// Where a gRPC peer is, from the URI that gRPC names it by.
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_PEER_ADDRESS_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_PEER_ADDRESS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace openpathways::resource_manager {

// The host part, ready for "host:port": "ipv4:10.0.0.1:77" gives "10.0.0.1", "ipv6:[fe80::1]:77" gives "[fe80::1]"; an
// IPv4 address inside an IPv6 one is unwrapped. Anything without a host (a Unix socket) gives "localhost".
std::string PeerHost(absl::string_view peer_uri);

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_PEER_ADDRESS_H_
