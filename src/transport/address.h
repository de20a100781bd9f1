// Addresses of peers: what "host:port" means and whether it is this host.
#ifndef OPENPATHWAYS_TRANSPORT_ADDRESS_H_
#define OPENPATHWAYS_TRANSPORT_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace openpathways::transport {

struct HostPort {
  std::string host;  // a name, IPv4, or IPv6 without brackets
  int port = 0;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// "host:port" or "[ipv6]:port". INVALID_ARGUMENT otherwise.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// True if `host` is an IPv4 or IPv6 address: then Resolve does not block.
bool IsNumericHost(const std::string& host);

// All TCP addresses of `target`, the preferred one first. May block for a name. UNAVAILABLE if there is none.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& target);

// The abstract Unix socket that belongs to a TCP port of this host (more precisely: network namespace).
SocketAddress UnixAddressOfPort(int port);

// True if `address` is of one of this host's own interfaces.
bool IsOwnAddress(const SocketAddress& address);

// "10.0.0.3:29005", "[fe80::1]:29005".
std::string ToString(const SocketAddress& address);

// The port of a TCP address.
int PortOf(const SocketAddress& address);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_ADDRESS_H_
