#include "resource_manager/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/flags.h"
#include "base/logging.h"

namespace openpathways::resource_manager {
namespace {

constexpr int kDefaultPort = 29001;

struct HostAndPort {
  std::string host;  // an IPv6 address in brackets
  int port = 0;      // 0: none, or not a number
};

HostAndPort Split(absl::string_view value) {
  const size_t colon = value.rfind(':');
  if (colon == absl::string_view::npos || (!value.empty() && value.back() == ']')) return {std::string(value), 0};
  if (value.find(':') != colon && !absl::StrContains(value, ']')) return {absl::StrCat("[", value, "]"), 0};
  HostAndPort parts{std::string(value.substr(0, colon)), 0};
  if (!absl::SimpleAtoi(value.substr(colon + 1), &parts.port)) parts.port = 0;
  return parts;
}

// "$(NAME)" -> "NAME"; "" for anything else.
std::string VariableName(absl::string_view host) {
  if (host.size() < 4 || host.substr(0, 2) != "$(" || host.back() != ')') return "";
  return std::string(host.substr(2, host.size() - 3));
}

}  // namespace

std::string WithPort(const std::string& host, int default_port) {
  const HostAndPort parts = Split(host);
  return absl::StrCat(parts.host, ":", parts.port != 0 ? parts.port : default_port);
}

std::string ResolveResourceManagerAddress(const std::string& flag_value) {
  const HostAndPort given = Split(flag_value);
  if (!given.host.empty() && !absl::StrContains(given.host, "$(")) return WithPort(flag_value, kDefaultPort);
  std::string source = "localhost";
  std::string host = "localhost";
  for (const std::string& variable :
       {VariableName(given.host), std::string("PATHWAYS_HEAD"), std::string("HOST_ADDRESS")}) {
    const std::string value = variable.empty() ? "" : EnvironmentValue(variable);
    if (value.empty() || absl::StrContains(value, "$(")) continue;
    host = value;
    source = variable;
    break;
  }
  spdlog::warn("--resource_manager_address='{}' names no host; using '{}' ({})", flag_value, host, source);
  // The port of the flag goes before one that came with the host.
  return given.port != 0 ? absl::StrCat(Split(host).host, ":", given.port) : WithPort(host, kDefaultPort);
}

}  // namespace openpathways::resource_manager
