#include "server/role.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace openpathways::server {
namespace {

absl::string_view NodeType(int argc, const char* const* argv) {
  absl::string_view type;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (!absl::ConsumePrefix(&argument, "--")) absl::ConsumePrefix(&argument, "-");
    if (!absl::ConsumePrefix(&argument, "node_type")) continue;
    if (absl::ConsumePrefix(&argument, "=")) {
      type = argument;
    } else if (argument.empty() && i + 1 < argc) {
      type = argv[i + 1];
    }
  }
  for (absl::string_view quote : {"'", "\""}) {
    if (absl::ConsumePrefix(&type, quote)) absl::ConsumeSuffix(&type, quote);
  }
  return type;
}

}  // namespace

absl::StatusOr<std::string> BinaryForArguments(int argc, const char* const* argv) {
  const absl::string_view type = NodeType(argc, argv);
  if (type == "resource_manager") return "pathways_resource_manager";
  if (type.empty() || type == "worker") return "pathways_worker";
  return absl::InvalidArgumentError(
      absl::StrCat("--node_type=", type, ": must be resource_manager, or absent for a worker"));
}

}  // namespace openpathways::server
