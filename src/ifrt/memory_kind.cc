#include "ifrt/memory_kind.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ifrt/device.h"

namespace openpathways::ifrt {

absl::Status CheckMemoryKind(absl::string_view kind) {
  if (kind.empty() || std::find(std::begin(kMemoryKinds), std::end(kMemoryKinds), kind) != std::end(kMemoryKinds)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no device has a memory of kind '", kind, "'; there are ", absl::StrJoin(kMemoryKinds, ", ")));
}

bool IsSameMemory(absl::string_view a, absl::string_view b) {
  auto named = [](absl::string_view kind) { return kind.empty() ? absl::string_view(kMemoryKinds[0]) : kind; };
  return named(a) == named(b);
}

}  // namespace openpathways::ifrt
