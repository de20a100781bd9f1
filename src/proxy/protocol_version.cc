#include "proxy/protocol_version.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace openpathways::proxy {
namespace {

absl::StatusOr<int> Negotiate(absl::string_view what, int client_min, int client_max, int server_min, int server_max) {
  const int version = std::min(client_max, server_max);
  if (version >= client_min && version >= server_min) return version;
  return absl::InvalidArgumentError(absl::StrCat("IFRT Proxy client and server failed to agree on the ", what,
                                                 " version; supported versions: client = [", client_min, ", ",
                                                 client_max, "], server = [", server_min, ", ", server_max, "]"));
}

absl::Status CheckRange(absl::string_view what, int version, int min, int max) {
  if (version >= min && version <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("A session of ", what, " version ", version,
                                                 " cannot be served; supported: [", min, ", ", max, "]"));
}

}  // namespace

absl::StatusOr<xla::ifrt::proxy::IfrtProxyVersion> NegotiateVersion(
    const xla::ifrt::proxy::GrpcGetVersionRequest& request) {
  ASSIGN_OR_RETURN(int protocol,
                   Negotiate("protocol", request.min_version().protocol_version(),
                             request.max_version().protocol_version(), kMinProtocolVersion, kMaxProtocolVersion));
  ASSIGN_OR_RETURN(int serdes,
                   Negotiate("IFRT SerDes", request.min_version().ifrt_serdes_version_number(),
                             request.max_version().ifrt_serdes_version_number(), kMinSerdesVersion, kMaxSerdesVersion));
  xla::ifrt::proxy::IfrtProxyVersion version;
  version.set_protocol_version(protocol);
  version.set_ifrt_serdes_version_number(serdes);
  return version;
}

absl::Status CheckVersion(const xla::ifrt::proxy::IfrtProxyVersion& version) {
  RETURN_IF_ERROR(CheckRange("protocol", version.protocol_version(), kMinProtocolVersion, kMaxProtocolVersion));
  return CheckRange("IFRT SerDes", version.ifrt_serdes_version_number(), kMinSerdesVersion, kMaxSerdesVersion);
}

}  // namespace openpathways::proxy
