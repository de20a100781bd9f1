#include "cli/commands.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/slice_topology.h"

namespace openpathways::cli {

int PrintError(const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "pathways: %s\n", std::string(status.message()).c_str());
  return 1;
}

std::string DescribeSlices(const std::vector<std::string>& instance_types) {
  const auto describe = [](const std::string& type) {
    return absl::StrCat(topology::SliceTopology::Parse(type)->accelerator_type(), " (", type, ")");
  };
  bool same = true;
  for (const std::string& type : instance_types) same = same && type == instance_types[0];
  if (same) {
    return absl::StrCat(instance_types.size(), instance_types.size() == 1 ? " slice of " : " slices of ",
                        describe(instance_types[0]));
  }
  return absl::StrCat(instance_types.size(),
                      " slices: ", absl::StrJoin(instance_types, ", ", [&](std::string* out, const std::string& type) {
                        absl::StrAppend(out, describe(type));
                      }));
}

}  // namespace openpathways::cli
