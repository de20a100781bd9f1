// What it takes to rewrite the collectives of a program: a chain of 100 elementwise operations and as many all-reduces,
// by number of devices.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "hlo/hlo.pb.h"
#include "hlo/rewrite_collectives.h"

namespace openpathways::hlo {
namespace {

constexpr int kF32 = 11;  // xla.PrimitiveType
constexpr int64_t kReducer = 1;
constexpr int64_t kEntry = 2;
constexpr int kCollectives = 100;

ShapeProto F32(std::initializer_list<int64_t> dims) {
  ShapeProto shape;
  shape.set_element_type(kF32);
  for (int64_t dim : dims) {
    shape.mutable_layout()->add_minor_to_major(shape.dimensions_size());
    shape.add_dimensions(dim);
    shape.add_is_dynamic_dimension(false);
  }
  return shape;
}

HloInstructionProto& Append(HloComputationProto& computation, const std::string& opcode, const ShapeProto& shape,
                            std::initializer_list<int64_t> operands) {
  HloInstructionProto& instruction = *computation.add_instructions();
  instruction.set_id(computation.id() << 32 | computation.instructions_size());
  instruction.set_name(absl::StrCat(opcode, ".", instruction.id()));
  instruction.set_opcode(opcode);
  *instruction.mutable_shape() = shape;
  for (int64_t operand : operands) instruction.add_operand_ids(operand);
  computation.set_root_id(instruction.id());
  return instruction;
}

int64_t AppendParameter(HloComputationProto& computation, int number, const ShapeProto& shape) {
  HloInstructionProto& parameter = Append(computation, "parameter", shape, {});
  parameter.set_parameter_number(number);
  *computation.mutable_program_shape()->add_parameters() = shape;
  return parameter.id();
}

HloModuleProto ChainOfAllReduces(int num_devices) {
  HloModuleProto module;
  module.set_name("chain");
  HloComputationProto& reducer = *module.add_computations();
  reducer.set_id(kReducer);
  reducer.set_name("add");
  const int64_t a = AppendParameter(reducer, 0, F32({}));
  const int64_t b = AppendParameter(reducer, 1, F32({}));
  Append(reducer, "add", F32({}), {a, b});
  *reducer.mutable_program_shape()->mutable_result() = F32({});

  HloComputationProto& entry = *module.add_computations();
  entry.set_id(kEntry);
  entry.set_name("main");
  const ShapeProto shape = F32({128, 128});
  int64_t last = AppendParameter(entry, 0, shape);
  for (int i = 0; i < kCollectives; ++i) {
    last = Append(entry, "add", shape, {last, last}).id();
    HloInstructionProto& all_reduce = Append(entry, "all-reduce", shape, {last});
    last = all_reduce.id();
    all_reduce.add_called_computation_ids(kReducer);
    all_reduce.set_channel_id(i + 1);
    all_reduce.set_use_global_device_ids(true);
    ReplicaGroup& group = *all_reduce.add_replica_groups();
    for (int device = 0; device < num_devices; ++device) group.add_replica_ids(device);
  }
  *entry.mutable_program_shape()->mutable_result() = shape;
  module.set_entry_computation_id(kEntry);
  module.set_entry_computation_name("main");
  *module.mutable_host_program_shape() = entry.program_shape();
  DeviceAssignmentProto& assignment = *module.mutable_device_assignment();
  assignment.set_replica_count(1);
  assignment.set_computation_count(num_devices);
  for (int device = 0; device < num_devices; ++device) {
    assignment.add_computation_devices()->add_replica_device_ids(device);
  }
  return module;
}

void Rewrite(benchmark::State& state) {
  const HloModuleProto original = ChainOfAllReduces(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    state.PauseTiming();
    HloModuleProto module = original;
    state.ResumeTiming();
    const absl::StatusOr<bool> changed = RewriteCollectives(module);
    if (!changed.ok() || !*changed) return state.SkipWithError(changed.status().ToString().c_str());
  }
  state.SetItemsProcessed(state.iterations() * kCollectives);
}
BENCHMARK(Rewrite)->Arg(4)->Arg(64)->Arg(2048)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace openpathways::hlo

BENCHMARK_MAIN();
