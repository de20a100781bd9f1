#include "hlo/program.h"

#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/collective_call.h"
#include "hlo/shape.h"

namespace openpathways::hlo {
namespace {

constexpr int kShardingTypeTuple = 2;

absl::Status AppendArrays(const ShapeProto& shape, std::vector<ArrayShape>& arrays) {
  if (shape.element_type() == kTuple) {
    for (const ShapeProto& element : shape.tuple_shapes()) RETURN_IF_ERROR(AppendArrays(element, arrays));
    return absl::OkStatus();
  }
  if (shape.element_type() == 0) return absl::InvalidArgumentError("a shape without an element type");
  ArrayShape array;
  array.element_type = shape.element_type();
  array.dimensions.assign(shape.dimensions().begin(), shape.dimensions().end());
  array.minor_to_major.assign(shape.layout().minor_to_major().begin(), shape.layout().minor_to_major().end());
  arrays.push_back(std::move(array));
  return absl::OkStatus();
}

// The sharding of each of `count` values: the elements of a tuple sharding, or the one for all.
absl::Status AppendShardings(const std::string& serialized, size_t count, std::vector<std::string>& shardings) {
  OpShardingElements sharding;
  if (!sharding.ParseFromString(serialized)) return absl::InvalidArgumentError("a sharding that is no OpSharding");
  if (sharding.type() != kShardingTypeTuple) {
    shardings.insert(shardings.end(), count, serialized);
    return absl::OkStatus();
  }
  // XLA writes one element for an empty tuple.
  if (static_cast<size_t>(sharding.tuple_shardings_size()) < count) {
    return absl::InvalidArgumentError(
        absl::StrCat(sharding.tuple_shardings_size(), " shardings for ", count, " values"));
  }
  for (size_t i = 0; i < count; ++i) shardings.push_back(sharding.tuple_shardings(static_cast<int>(i)));
  return absl::OkStatus();
}

std::vector<int64_t> DonatedParameters(const HloModuleProto& module) {
  // With tupled arguments the one parameter is a tuple and its index names the argument.
  auto argument = [](int64_t parameter, const google::protobuf::RepeatedField<int64_t>& index) {
    return index.empty() ? parameter : index[0];
  };
  std::set<int64_t> donated;
  for (const auto& entry : module.input_output_alias().entries()) {
    donated.insert(argument(entry.parameter_number(), entry.parameter_shape_index()));
  }
  // What was offered (buffer_donor) and fits no result has not been taken: it stays the caller's.
  return std::vector<int64_t>(donated.begin(), donated.end());
}

// Steps that XLA does not show yet, copies above all, are left room for.
constexpr int kFewSteps = 5;

bool IsCollective(const HloInstructionProto& instruction) {
  static const auto* const opcodes = new absl::flat_hash_set<absl::string_view>{
      "all-reduce",     "all-gather",         "all-to-all",          "ragged-all-to-all",
      "reduce-scatter", "collective-permute", "collective-broadcast"};
  return opcodes->contains(instruction.opcode()) || instruction.custom_call_target() == kCollectiveTarget;
}

// What may run any number of times, wait for others, or run on other threads.
bool IsControlFlow(const HloInstructionProto& instruction) {
  static const auto* const opcodes = new absl::flat_hash_set<absl::string_view>{"while",
                                                                                "conditional",
                                                                                "call",
                                                                                "async-start",
                                                                                "infeed",
                                                                                "outfeed",
                                                                                "send",
                                                                                "recv",
                                                                                "all-reduce-start",
                                                                                "all-gather-start",
                                                                                "collective-permute-start"};
  return opcodes->contains(instruction.opcode());
}

bool IsStep(const HloInstructionProto& instruction) {
  static const auto* const none = new absl::flat_hash_set<absl::string_view>{
      "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"};
  return !none->contains(instruction.opcode());
}

void ReadSteps(const HloModuleProto& module, ProgramShape& program) {
  int steps = 0;
  for (const HloComputationProto& computation : module.computations()) {
    for (const HloInstructionProto& instruction : computation.instructions()) {
      if (IsControlFlow(instruction)) program.straight_line = program.few_steps = false;
      if (IsCollective(instruction)) program.straight_line = false;
      if (computation.id() == module.entry_computation_id() && IsStep(instruction)) ++steps;
    }
  }
  if (steps > kFewSteps) program.few_steps = false;
}

absl::StatusOr<ProgramShape> Read(const HloModuleProto& module) {
  ProgramShape program;
  program.name = module.name();
  for (const ShapeProto& parameter : module.host_program_shape().parameters()) {
    RETURN_IF_ERROR(AppendArrays(parameter, program.parameters));
  }
  RETURN_IF_ERROR(AppendArrays(module.host_program_shape().result(), program.results));
  if (module.spmd_parameters_shardings_size() > 0) {
    const bool one_each = module.spmd_parameters_shardings_size() == static_cast<int>(program.parameters.size());
    for (const std::string& sharding : module.spmd_parameters_shardings()) {
      RETURN_IF_ERROR(AppendShardings(sharding, one_each ? 1 : program.parameters.size(), program.parameter_shardings));
    }
    if (program.parameter_shardings.size() != program.parameters.size()) {
      return absl::InvalidArgumentError(absl::StrCat(program.parameter_shardings.size(), " shardings for ",
                                                     program.parameters.size(), " parameters"));
    }
  }
  if (module.has_spmd_output_sharding()) {
    RETURN_IF_ERROR(AppendShardings(module.spmd_output_sharding(), program.results.size(), program.result_shardings));
  }
  program.donated_parameters = DonatedParameters(module);
  ReadSteps(module, program);
  return program;
}

}  // namespace

absl::StatusOr<ProgramShape> ReadProgramShape(const HloModuleProto& module) {
  absl::StatusOr<ProgramShape> program = Read(module);
  if (!program.ok()) return AnnotateStatus(program.status(), absl::StrCat("HLO module ", module.name()));
  return program;
}

absl::StatusOr<ProgramShape> ReadProgramShape(absl::string_view serialized_module) {
  HloModuleProto module;
  if (!module.ParseFromArray(serialized_module.data(), static_cast<int>(serialized_module.size()))) {
    return absl::InvalidArgumentError("an optimized program that is no HloModuleProto");
  }
  return ReadProgramShape(module);
}

}  // namespace openpathways::hlo
