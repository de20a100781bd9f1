#include "resource_manager/address.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/logging.h"

namespace openpathways::resource_manager {
namespace {

constexpr absl::string_view kDefaultPort = "29001";

// "$(NAME)" -> "NAME"; "" for anything else.
std::string VariableName(absl::string_view host) {
  if (host.size() < 4 || host.substr(0, 2) != "$(" || host.back() != ')') return "";
  return std::string(host.substr(2, host.size() - 3));
}

}  // namespace

std::string ResolveResourceManagerAddress(const std::string& flag_value) {
  const absl::string_view value = flag_value;
  absl::string_view host = value;
  absl::string_view port = kDefaultPort;
  const size_t colon = value.rfind(':');
  const bool bare_ipv6 = colon != absl::string_view::npos && value.find(':') != colon && !absl::StrContains(value, ']');
  const bool bracketed_only = !value.empty() && value.back() == ']';
  if (colon != absl::string_view::npos && !bare_ipv6 && !bracketed_only) {
    host = value.substr(0, colon);
    if (int number = 0; absl::SimpleAtoi(value.substr(colon + 1), &number)) port = value.substr(colon + 1);
  }
  std::string resolved = bare_ipv6 ? absl::StrCat("[", host, "]") : std::string(host);
  if (resolved.empty() || absl::StrContains(resolved, "$(")) {
    std::string source = "localhost";
    resolved = "localhost";
    for (const std::string& variable :
         {VariableName(host), std::string("PATHWAYS_HEAD"), std::string("HOST_ADDRESS")}) {
      const char* from_environment = variable.empty() ? nullptr : std::getenv(variable.c_str());
      if (from_environment != nullptr && *from_environment != '\0') {
        resolved = from_environment;
        source = variable;
        break;
      }
    }
    spdlog::warn("--resource_manager_address='{}' names no host; using '{}' ({})", flag_value, resolved, source);
  }
  return absl::StrCat(resolved, ":", port);
}

}  // namespace openpathways::resource_manager
