#include "transport/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace openpathways::transport {
namespace {

// The address as 16 bytes, IPv4 in its IPv6 form, so that the two can be compared.
std::optional<in6_addr> AsIn6(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  in6_addr out{};
  if (address->sa_family == AF_INET6) {
    std::memcpy(&out, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, sizeof(out));
    return out;
  }
  if (address->sa_family == AF_INET) {
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(&out.s6_addr[12], &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, sizeof(in_addr));
    return out;
  }
  return std::nullopt;
}

bool IsLoopbackOrAny(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return address.s6_addr[12] == 127 || address.s6_addr[12] == 0;
  return IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_UNSPECIFIED(&address);
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  HostPort out;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &out.port) || out.port <= 0 ||
      out.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not of the form host:port"));
  }
  absl::string_view host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "': write an IPv6 address as [address]:port"));
  }
  if (host.empty()) return absl::InvalidArgumentError(absl::StrCat("'", address, "' names no host"));
  out.host = std::string(host);
  return out;
}

bool IsNumericHost(const std::string& host) {
  in6_addr ignored;
  // A zone ("fe80::1%eth0") resolves without a name server too.
  const std::string without_zone = host.substr(0, host.find('%'));
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, without_zone.c_str(), &ignored) == 1;
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& target) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (IsNumericHost(target.host) ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(target.host.c_str(), absl::StrCat(target.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve host '", target.host, "': ", gai_strerror(error)));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> out;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.length = info->ai_addrlen;
    out.push_back(address);
  }
  if (out.empty()) return absl::UnavailableError(absl::StrCat("host '", target.host, "' has no address"));
  return out;
}

SocketAddress UnixAddressOfPort(int port) {
  const std::string name = absl::StrCat("openpathways.", port);
  SocketAddress out;
  auto* address = reinterpret_cast<sockaddr_un*>(&out.storage);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());  // a leading zero byte: the abstract namespace
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

bool IsOwnAddress(const SocketAddress& address) {
  const std::optional<in6_addr> wanted = AsIn6(address.get());
  if (!wanted.has_value()) return false;
  if (IsLoopbackOrAny(*wanted)) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;  // TCP works for an own address too
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, freeifaddrs);
  for (const ifaddrs* interface = interfaces; interface != nullptr; interface = interface->ifa_next) {
    const std::optional<in6_addr> own = AsIn6(interface->ifa_addr);
    if (own.has_value() && std::memcmp(&*own, &*wanted, sizeof(in6_addr)) == 0) return true;
  }
  return false;
}

std::string ToString(const SocketAddress& address) {
  const std::optional<in6_addr> in6 = AsIn6(address.get());
  if (!in6.has_value()) return "unix";
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&*in6)) {
    inet_ntop(AF_INET, &in6->s6_addr[12], text, sizeof(text));
    return absl::StrCat(text, ":", PortOf(address));
  }
  inet_ntop(AF_INET6, &*in6, text, sizeof(text));
  return absl::StrCat("[", text, "]:", PortOf(address));
}

int PortOf(const SocketAddress& address) {
  if (address.family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
  if (address.family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return 0;
}

}  // namespace openpathways::transport
