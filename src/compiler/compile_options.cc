#include "compiler/compile_options.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/status.h"
#include "compiler/compile_options.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "pjrt/compile_options.h"

namespace openpathways::compiler {
namespace {

// What XLA takes where nobody says anything, in all versions.
constexpr int kDefaultOptimizationLevel = 3;
constexpr bool kDefaultExcessPrecision = true;

// An option that the user has given for this program stays.
void AddOverride(CompileOptionsWithOverrides& options, const std::string& name, const OptionOverrideProto& value) {
  options.mutable_env_option_overrides()->insert({name, value});
}
void AddFlag(CompileOptionsWithOverrides& options, const std::string& name, bool flag) {
  OptionOverrideProto value;
  value.set_bool_field(flag);
  AddOverride(options, name, value);
}

void ReplaceDebugOptions(CompileOptionsWithOverrides& options) {
  auto& build = *options.mutable_executable_build_options();
  if (!build.has_debug_options()) return;
  const DebugOptions debug = build.debug_options();
  build.clear_debug_options();
  if (debug.xla_backend_optimization_level() != kDefaultOptimizationLevel) {
    OptionOverrideProto value;
    value.set_int_field(debug.xla_backend_optimization_level());
    AddOverride(options, "xla_backend_optimization_level", value);
  }
  if (debug.xla_allow_excess_precision() != kDefaultExcessPrecision) {
    AddFlag(options, "xla_allow_excess_precision", debug.xla_allow_excess_precision());
  }
  if (debug.xla_llvm_disable_expensive_passes()) AddFlag(options, "xla_llvm_disable_expensive_passes", true);
  if (debug.xla_cpu_enable_fast_math()) AddFlag(options, "xla_cpu_enable_fast_math", true);
}

// Maps in a fixed order.
std::string SerializeDeterministically(const CompileOptionsWithOverrides& options) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  options.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> NormalizeCompileOptions(absl::string_view compile_options) {
  ASSIGN_OR_RETURN(const pjrt::ProgramSize size, pjrt::ReadProgramSize(compile_options));
  std::vector<int64_t> devices(size.num_replicas * size.num_partitions);
  std::iota(devices.begin(), devices.end(), 0);
  ASSIGN_OR_RETURN(const std::string canonical, pjrt::WithDeviceAssignment(compile_options, devices));
  CompileOptionsWithOverrides options;
  if (!options.ParseFromString(canonical)) {
    return absl::InvalidArgumentError("the compile options' debug options or overrides cannot be read");
  }
  ReplaceDebugOptions(options);
  return SerializeDeterministically(options);
}

}  // namespace openpathways::compiler
