#include "proxy/resource_manager_address.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace openpathways::proxy {
namespace {

std::string HostFromEnvironment(const std::string& wanted) {
  for (const std::string& name : {wanted, std::string("PATHWAYS_HEAD"), std::string("HOST_ADDRESS")}) {
    if (const char* value = std::getenv(name.c_str()); value != nullptr && *value != '\0') return value;
  }
  spdlog::warn("the environment sets neither {} nor HOST_ADDRESS: the resource manager is looked for on this host",
               wanted);
  return "localhost";
}

}  // namespace

std::string ResourceManagerAddress(const std::string& flag) {
  const std::string address = flag.empty() ? "$(PATHWAYS_HEAD):29001" : flag;
  const size_t begin = address.find("$(");
  const size_t end = address.find(')');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return address;
  return absl::StrCat(address.substr(0, begin), HostFromEnvironment(address.substr(begin + 2, end - begin - 2)),
                      address.substr(end + 1));
}

}  // namespace openpathways::proxy
