// Facts: the texts of openxla/xla, xla/backends/cpu (custom call thunks) and xla/service/spmd, as of PJRT API 0.115.
#include "compiler/plugin_errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace openpathways::compiler {
namespace {

struct Explanation {
  absl::string_view text;  // that the plugin's message has
  absl::string_view meaning;
};

constexpr Explanation kExplanations[] = {
    {"InspectSharding",
     "jax.debug.inspect_array_sharding calls a function of the client while the program is compiled, which happens in "
     "another process here; look at the sharding of a result instead"},
    {"CustomSPMDPartitioning",
     "custom_partitioning calls a function of the client while the program is compiled, which happens in another "
     "process here; use shard_map instead"},
    {"No registered implementation for untyped custom call",
     "these devices are emulated by a CPU and run XLA's own operations; a custom call needs the hardware that it was "
     "written for"},
    {"No FFI handler registered for",
     "a handler that the client's process has registered (jax.ffi.register_ffi_target) is not known on the workers"},
};

}  // namespace

absl::Status ExplainCompileError(const absl::Status& status) {
  for (const Explanation& explanation : kExplanations) {
    if (absl::StrContains(status.message(), explanation.text)) {
      return absl::UnimplementedError(absl::StrCat(status.message(), "; ", explanation.meaning));
    }
  }
  return status;
}

}  // namespace openpathways::compiler
