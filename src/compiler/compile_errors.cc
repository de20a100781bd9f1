// Facts: the texts of openxla/xla, xla/backends/cpu (custom call thunks) and xla/service/spmd, as of PJRT API 0.115.
#include "compiler/compile_errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "pjrt/compile_options.pb.h"

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

absl::Status CheckCompilable(absl::string_view program, const std::string& compile_options) {
  pjrt::CompileOptionsProto options;
  if (!options.ParseFromString(compile_options)) return absl::InvalidArgumentError("no CompileOptionsProto");
  const pjrt::ExecutableBuildOptionsProto& build = options.executable_build_options();
  if (build.num_partitions() <= 1 || build.use_shardy_partitioner()) return absl::OkStatus();
  // The name of the operation stands in full in both forms.
  if (!absl::StrContains(program, "chlo.ragged_dot")) return absl::OkStatus();
  return absl::UnimplementedError(
      "XLA partitions a ragged_dot over several devices with Shardy only: set JAX's option jax_use_shardy_partitioner "
      "to "
      "True, which is its default, or jax_ragged_dot_use_ragged_dot_instruction to False");
}

absl::Status ExplainCompileError(const absl::Status& status) {
  for (const Explanation& explanation : kExplanations) {
    if (absl::StrContains(status.message(), explanation.text)) {
      return absl::UnimplementedError(absl::StrCat(status.message(), "; ", explanation.meaning));
    }
  }
  return status;
}

}  // namespace openpathways::compiler
