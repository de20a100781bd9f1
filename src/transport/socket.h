// Makes sockets with the options that the transport wants: non-blocking, closed on exec, big buffers, no delay, and for
// TCP a bound of about 5 s after which a host that has vanished is noticed.
#ifndef OPENPATHWAYS_TRANSPORT_SOCKET_H_
#define OPENPATHWAYS_TRANSPORT_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/address.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

// Listens on a TCP port of all interfaces, IPv6 and IPv4. ALREADY_EXISTS if it is in use.
absl::StatusOr<UniqueFd> ListenTcp(int port);
// Listens on the Unix socket that belongs to the port. ALREADY_EXISTS if it is in use.
absl::StatusOr<UniqueFd> ListenUnix(int port);
absl::StatusOr<int> BoundPort(int fd);

// Starts to connect. The socket becomes writable when it is connected or has failed; see ConnectResult.
absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address);
// What became of StartConnect.
absl::Status ConnectResult(int fd);

// Sets the options of a connected socket, however it came to be. INVALID_ARGUMENT if `fd` is no stream socket.
absl::Status PrepareConnected(int fd);
bool IsUnixSocket(int fd);
// Address of the other side, for messages and logs.
std::string PeerName(int fd);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_SOCKET_H_
