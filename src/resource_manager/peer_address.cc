#include "resource_manager/peer_address.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace openpathways::resource_manager {

std::string PeerHost(absl::string_view peer_uri) {
  // gRPC percent-encodes the brackets of IPv6 addresses, and a zone's percent sign, since 1.40.
  const std::string decoded = absl::StrReplaceAll(peer_uri, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  absl::string_view uri = decoded;
  const bool ipv6 = absl::ConsumePrefix(&uri, "ipv6:");
  if (!ipv6 && !absl::ConsumePrefix(&uri, "ipv4:")) return "localhost";
  absl::string_view host = uri.substr(0, uri.rfind(':'));
  if (!ipv6) return std::string(host);
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  if (absl::ConsumePrefix(&host, "::ffff:") && absl::StrContains(host, '.')) return std::string(host);
  return absl::StrCat("[", host, "]");
}

}  // namespace openpathways::resource_manager
