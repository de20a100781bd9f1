#include "hlo/async_launch.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hlo/shape.h"

namespace openpathways::hlo {
namespace {

constexpr int64_t kOperations = 2048;

// Adds instructions to a computation, giving them ids and names.
class Builder {
 public:
  explicit Builder(HloComputationProto& computation) : computation_(computation), next_id_(computation.id() << 32) {
    for (const HloInstructionProto& instruction : computation.instructions()) {
      next_id_ = std::max(next_id_, instruction.id() + 1);
    }
  }

  HloInstructionProto& Add(const std::string& opcode, ShapeProto shape, std::initializer_list<int64_t> operands) {
    HloInstructionProto& instruction = *computation_.add_instructions();
    instruction.set_id(next_id_++);
    instruction.set_opcode(opcode);
    instruction.set_name(
        absl::StrCat("pathways-never-", opcode, ".", instruction.id() >> 32, ".", instruction.id() & 0xffffffff));
    for (int64_t operand : operands) instruction.add_operand_ids(operand);
    *instruction.mutable_shape() = std::move(shape);
    return instruction;
  }

 private:
  HloComputationProto& computation_;
  int64_t next_id_;
};

HloComputationProto MakeBranch(int64_t id, bool heavy) {
  HloComputationProto computation;
  computation.set_id(id);
  computation.set_name(absl::StrCat("pathways-never-branch.", id));
  *computation.mutable_program_shape()->add_parameters() = ScalarShape(kU32);
  *computation.mutable_program_shape()->mutable_result() = ScalarShape(kU32);
  computation.mutable_program_shape()->add_parameter_names("number");
  Builder builder(computation);
  int64_t value = builder.Add("parameter", ScalarShape(kU32), {}).id();
  if (heavy) {
    // In floating point: what the plugin counts are floating-point operations.
    const ShapeProto wide = VectorShape(kF32, kOperations);
    value = builder.Add("convert", ScalarShape(kF32), {value}).id();
    value = builder.Add("broadcast", wide, {value}).id();
    value = builder.Add("multiply", wide, {value, value}).id();
    HloInstructionProto& slice = builder.Add("slice", VectorShape(kF32, 1), {value});
    auto& first = *slice.add_slice_dimensions();
    first.set_limit(1);
    first.set_stride(1);
    value = builder.Add("bitcast", ScalarShape(kF32), {slice.id()}).id();
    value = builder.Add("convert", ScalarShape(kU32), {value}).id();
  } else {
    value = builder.Add("copy", ScalarShape(kU32), {value}).id();
  }
  computation.set_root_id(value);
  return computation;
}

// The root waits for the branch: what nothing waits for would be taken out again.
void AddBranch(HloComputationProto& entry, int64_t heavy, int64_t light) {
  Builder builder(entry);
  const int64_t number = builder.Add("partition-id", ScalarShape(kU32), {}).id();
  HloInstructionProto& never = builder.Add("compare", ScalarShape(kPred), {number, number});
  never.set_comparison_direction("NE");
  HloInstructionProto& conditional = builder.Add("conditional", ScalarShape(kU32), {never.id(), number, number});
  conditional.add_called_computation_ids(heavy);  // if true
  conditional.add_called_computation_ids(light);
  for (HloInstructionProto& instruction : *entry.mutable_instructions()) {
    if (instruction.id() == entry.root_id()) instruction.add_control_predecessor_ids(conditional.id());
  }
  auto& list = *entry.mutable_instructions();
  std::rotate(list.pointer_begin(), list.pointer_end() - 3, list.pointer_end());
}

}  // namespace

void PreventInlineLaunch(HloModuleProto& module) {
  int64_t next_computation = 0;
  for (const HloComputationProto& computation : module.computations()) {
    next_computation = std::max(next_computation, computation.id() + 1);
  }
  const int64_t heavy = next_computation;
  const int64_t light = next_computation + 1;
  for (HloComputationProto& computation : *module.mutable_computations()) {
    if (computation.id() == module.entry_computation_id()) AddBranch(computation, heavy, light);
  }
  // Callees come before their callers.
  *module.add_computations() = MakeBranch(heavy, /*heavy=*/true);
  *module.add_computations() = MakeBranch(light, /*heavy=*/false);
  std::rotate(module.mutable_computations()->pointer_begin(), module.mutable_computations()->pointer_end() - 2,
              module.mutable_computations()->pointer_end());
}

}  // namespace openpathways::hlo
