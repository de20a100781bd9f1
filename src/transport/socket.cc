#include "transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace openpathways::transport {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr int kTcpSendBufferBytes = 16 << 20;
constexpr absl::Duration kLongRoundTrip = absl::Milliseconds(1);
constexpr int kBacklog = 4096;
constexpr int kUserTimeoutMillis = 5000;

absl::Status Error(absl::StatusCode code, absl::string_view what, int error) {
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(error)));
}

absl::Status SetOption(int fd, int level, int name, int value, absl::string_view what) {
  if (setsockopt(fd, level, name, &value, sizeof(value)) == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, absl::StrCat("setsockopt ", what), errno);
}

// Unix sockets have small buffers that never grow.
void SetBufferSizes(int fd) {
  // The kernel caps the value; whatever it grants will do.
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof(kBufferBytes));
}

// How far TCP's send buffers grow by themselves; 0 if that is unknown.
int SendBufferLimit() {
  int least = 0, first = 0, most = 0;
  std::ifstream("/proc/sys/net/ipv4/tcp_wmem") >> least >> first >> most;
  return most;
}

// What the kernel grants if it is asked for `bytes`; 0 if it cannot be asked.
int GrantedSendBuffer(int bytes) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int granted = 0;
  socklen_t length = sizeof(granted);
  const bool asked = fd.valid() && setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
                     getsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &granted, &length) == 0;
  return asked ? granted : 0;
}

// As the handshake found it; 0 if unknown.
absl::Duration RoundTrip(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return absl::ZeroDuration();
  return absl::Microseconds(info.tcpi_rtt);
}

// On a long path the send buffer bounds the throughput: it holds what is under way. TCP's grow by themselves up to a
// limit, on most machines further than we may set them, and setting them ends that; on a short path it only costs
// cache. So this is only done where it gains something.
absl::Status EnlargeSendBuffer(int fd) {
  static const bool granted = [] {
    const int limit = SendBufferLimit();
    return limit > 0 && GrantedSendBuffer(kTcpSendBufferBytes) > limit;
  }();
  if (!granted || RoundTrip(fd) < kLongRoundTrip) return absl::OkStatus();
  return SetOption(fd, SOL_SOCKET, SO_SNDBUF, kTcpSendBufferBytes, "SO_SNDBUF");
}

absl::Status PrepareTcp(int fd) {
  RETURN_IF_ERROR(EnlargeSendBuffer(fd));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  // Idle connections: probed after 2 s, then each second, given up after 3. With data under way: the user timeout.
  RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2, "TCP_KEEPIDLE"));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  return SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMillis, "TCP_USER_TIMEOUT");
}

absl::StatusOr<UniqueFd> NewSocket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Error(absl::StatusCode::kResourceExhausted, "cannot create a socket", errno);
  return fd;
}

absl::StatusOr<UniqueFd> BindAndListen(UniqueFd fd, const SocketAddress& address, absl::string_view what) {
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), kBacklog) != 0) {
    const auto code = errno == EADDRINUSE ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kUnavailable;
    return Error(code, absl::StrCat("cannot listen on ", what), errno);
  }
  return fd;
}

absl::StatusOr<SocketAddress> LocalAddress(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, address.get(), &address.length) != 0) {
    return Error(absl::StatusCode::kInternal, "getsockname", errno);
  }
  return address;
}

// Connecting to a free port from which the kernel happens to pick the local one connects a TCP socket to itself.
bool IsConnectedToItself(int fd) {
  SocketAddress peer;
  peer.length = sizeof(peer.storage);
  absl::StatusOr<SocketAddress> local = LocalAddress(fd);
  return local.ok() && local->family() != AF_UNIX && getpeername(fd, peer.get(), &peer.length) == 0 &&
         ToString(peer) == ToString(*local);
}

}  // namespace

absl::StatusOr<UniqueFd> ListenTcp(int port) {
  SocketAddress address;
  absl::StatusOr<UniqueFd> fd = NewSocket(AF_INET6);
  if (fd.ok()) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_addr = in6addr_any;
    in6->sin6_port = htons(static_cast<uint16_t>(port));
    address.length = sizeof(*in6);
    RETURN_IF_ERROR(SetOption(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, 0, "IPV6_V6ONLY"));
  } else {  // a host without IPv6
    fd = NewSocket(AF_INET);
    RETURN_IF_ERROR(fd.status());
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_ANY);
    in->sin_port = htons(static_cast<uint16_t>(port));
    address.length = sizeof(*in);
  }
  RETURN_IF_ERROR(SetOption(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  return BindAndListen(*std::move(fd), address, absl::StrCat("port ", port));
}

absl::StatusOr<UniqueFd> ListenUnix(int port) {
  ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(AF_UNIX));
  return BindAndListen(std::move(fd), UnixAddressOfPort(port), absl::StrCat("the Unix socket of port ", port));
}

absl::StatusOr<int> BoundPort(int fd) {
  ASSIGN_OR_RETURN(SocketAddress address, LocalAddress(fd));
  return PortOf(address);
}

absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address) {
  ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(address.family()));
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return fd;
}

absl::Status ConnectResult(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0 && IsConnectedToItself(fd)) error = ECONNREFUSED;
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  return absl::OkStatus();
}

absl::Status PrepareConnected(int fd) {
  int type = 0;
  socklen_t length = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " is no stream socket"));
  }
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return Error(absl::StatusCode::kInternal, "fcntl", errno);
  }
  if (!IsUnixSocket(fd)) return PrepareTcp(fd);
  SetBufferSizes(fd);
  return absl::OkStatus();
}

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

std::string PeerName(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(fd, address.get(), &address.length) != 0) return "unknown peer";
  if (address.family() != AF_UNIX) return ToString(address);
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return "unix";
  return absl::StrCat("unix:pid ", credentials.pid);
}

}  // namespace openpathways::transport
