#include "hlo/rewrite_collectives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/collective_call.h"
#include "hlo/computation_editor.h"
#include "hlo/reduction.h"
#include "hlo/replica_groups.h"
#include "hlo/shape.h"
#include "hlo/typed_call.h"

namespace openpathways::hlo {
namespace {

using pjrt::ProgramSize;

CollectiveDescriptor::Kind KindOf(const std::string& opcode) {
  if (opcode == "all-reduce") return CollectiveDescriptor::ALL_REDUCE;
  if (opcode == "all-gather") return CollectiveDescriptor::ALL_GATHER;
  if (opcode == "reduce-scatter") return CollectiveDescriptor::REDUCE_SCATTER;
  if (opcode == "all-to-all") return CollectiveDescriptor::ALL_TO_ALL;
  if (opcode == "collective-permute") return CollectiveDescriptor::COLLECTIVE_PERMUTE;
  if (opcode == "collective-broadcast") return CollectiveDescriptor::COLLECTIVE_BROADCAST;
  if (opcode == "ragged-all-to-all") return CollectiveDescriptor::RAGGED_ALL_TO_ALL;
  return CollectiveDescriptor::KIND_UNSPECIFIED;
}

bool IsAsyncCollective(const std::string& opcode) {
  for (absl::string_view suffix : {"-start", "-done"}) {
    if (absl::EndsWith(opcode, suffix)) {
      return KindOf(opcode.substr(0, opcode.size() - suffix.size())) != CollectiveDescriptor::KIND_UNSPECIFIED;
    }
  }
  return false;
}

bool IsReduction(CollectiveDescriptor::Kind kind) {
  return kind == CollectiveDescriptor::ALL_REDUCE || kind == CollectiveDescriptor::REDUCE_SCATTER;
}

// Rewrites the collectives of one module.
class Rewriter {
 public:
  Rewriter(HloModuleProto& module, ProgramSize size) : module_(module), size_(size) {}

  absl::StatusOr<bool> Run() {
    bool changed = false;
    for (HloComputationProto& computation : *module_.mutable_computations()) {
      const bool any =
          std::any_of(computation.instructions().begin(), computation.instructions().end(),
                      [](const auto& i) { return KindOf(i.opcode()) != 0 || IsAsyncCollective(i.opcode()); });
      if (!any) continue;
      RETURN_IF_ERROR(RewriteComputation(computation));
      changed = true;
    }
    return changed;
  }

 private:
  absl::Status RewriteComputation(HloComputationProto& computation) {
    ComputationEditor editor(computation);
    device_operands_ = {editor.AddFirst(DeviceNumber("replica-id")), editor.AddFirst(DeviceNumber("partition-id"))};
    return editor.ForEach([&](HloInstructionProto instruction) -> absl::Status {
      const auto kind = KindOf(instruction.opcode());
      if (IsAsyncCollective(instruction.opcode())) {
        return absl::UnimplementedError(
            absl::StrCat("asynchronous collective ", instruction.opcode(), " ", instruction.name()));
      }
      if (kind == CollectiveDescriptor::KIND_UNSPECIFIED) {
        editor.Append(std::move(instruction));
        return absl::OkStatus();
      }
      const std::string what = absl::StrCat("collective ", instruction.opcode(), " ", instruction.name());
      return AnnotateStatus(Rewrite(editor, kind, std::move(instruction)), what);
    });
  }

  static HloInstructionProto DeviceNumber(const std::string& opcode) {
    HloInstructionProto instruction;
    instruction.set_name(absl::StrCat("pathways-", opcode));
    instruction.set_opcode(opcode);
    *instruction.mutable_shape() = ScalarShape(kU32);
    return instruction;
  }

  absl::Status Rewrite(ComputationEditor& editor, CollectiveDescriptor::Kind kind, HloInstructionProto instruction) {
    CollectiveDescriptor descriptor;
    descriptor.set_kind(kind);
    descriptor.set_instruction(next_instruction_++);
    RETURN_IF_ERROR(DescribeDevices(instruction, descriptor));
    if (IsReduction(kind)) {
      ASSIGN_OR_RETURN(CollectiveDescriptor::Reduction reduction, ReductionOf(instruction));
      descriptor.set_reduction(reduction);
    }

    // What users see keeps the instruction's id and shape; the call itself may work on wider elements.
    const ShapeProto original_shape = instruction.shape();
    std::vector<ShapeProto> results = Leaves(original_shape);
    for (ShapeProto& result : results) WidenSubByte(result);
    std::vector<ShapeProto> operands;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) {
      ASSIGN_OR_RETURN(ShapeProto shape, editor.ShapeOf(instruction.operand_ids(i)));
      ASSIGN_OR_RETURN(ShapeProto wanted, OperandShape(kind, shape, results, i));
      instruction.set_operand_ids(i, editor.ConvertTo(instruction.operand_ids(i), shape, wanted));
      operands.push_back(std::move(wanted));
    }
    RETURN_IF_ERROR(DescribeArrays(kind, instruction, operands, results, descriptor));

    const bool widened = std::any_of(results.begin(), results.end(), [&, i = 0](const ShapeProto& result) mutable {
      return result.element_type() != Leaves(original_shape)[i++].element_type();
    });
    const int64_t original_id = instruction.id();
    MakeCall(std::move(operands), results, descriptor, instruction);
    if (!widened) {
      editor.Append(std::move(instruction));
      return absl::OkStatus();
    }
    instruction.set_id(editor.NewId());
    const HloInstructionProto call = instruction;
    editor.Append(std::move(instruction));
    editor.AppendConverted(call, original_id, original_shape);
    return absl::OkStatus();
  }

  absl::Status DescribeDevices(const HloInstructionProto& instruction, CollectiveDescriptor& descriptor) {
    if (descriptor.kind() == CollectiveDescriptor::COLLECTIVE_PERMUTE) {
      ASSIGN_OR_RETURN(DevicePairs pairs, ReadDevicePairs(instruction, size_));
      for (const auto& [source, target] : pairs) {
        CollectiveDescriptor::Pair& pair = *descriptor.add_pairs();
        pair.set_source(source);
        pair.set_target(target);
      }
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(DeviceGroups groups, ReadDeviceGroups(instruction, size_));
    for (const auto& group : groups) {
      auto& devices = *descriptor.add_groups()->mutable_devices();
      devices.Add(group.begin(), group.end());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<CollectiveDescriptor::Reduction> ReductionOf(const HloInstructionProto& instruction) const {
    for (const HloComputationProto& computation : module_.computations()) {
      if (instruction.called_computation_ids_size() == 1 && computation.id() == instruction.called_computation_ids(0)) {
        return ReadReduction(computation);
      }
    }
    return absl::InvalidArgumentError("its reduction computation is missing");
  }

  // The shape in which an operand is passed: in memory order like the result that it becomes part of.
  static absl::StatusOr<ShapeProto> OperandShape(CollectiveDescriptor::Kind kind, ShapeProto shape,
                                                 const std::vector<ShapeProto>& results, int index) {
    if (!IsArray(shape)) return absl::UnimplementedError("an operand is no array");
    WidenSubByte(shape);
    const bool ragged = kind == CollectiveDescriptor::RAGGED_ALL_TO_ALL;
    // Of a ragged-all-to-all, operands 0 and 1 are data and the rest are one-dimensional tables.
    if (ragged && index > 1) return shape;
    const size_t result = ragged ? 0 : static_cast<size_t>(index);
    if (result >= results.size() || results[result].dimensions_size() != shape.dimensions_size()) {
      return absl::UnimplementedError(absl::StrCat("operand ", index, " has no result of the same rank"));
    }
    *shape.mutable_layout() = results[result].layout();
    return shape;
  }

  static absl::Status DescribeArrays(CollectiveDescriptor::Kind kind, const HloInstructionProto& instruction,
                                     const std::vector<ShapeProto>& operands, const std::vector<ShapeProto>& results,
                                     CollectiveDescriptor& descriptor) {
    for (const ShapeProto& operand : operands) {
      ASSIGN_OR_RETURN(*descriptor.add_operands(), PhysicalArray(operand));
    }
    for (const ShapeProto& result : results) {
      ASSIGN_OR_RETURN(*descriptor.add_results(), PhysicalArray(result));
    }
    if (kind == CollectiveDescriptor::RAGGED_ALL_TO_ALL) {
      if (PhysicalDimension(results[0], 0) != 0) {
        return absl::UnimplementedError("its ragged dimension is not the outermost in memory");
      }
      return absl::OkStatus();
    }
    if (kind == CollectiveDescriptor::ALL_GATHER || kind == CollectiveDescriptor::REDUCE_SCATTER) {
      if (instruction.dimensions_size() != 1) return absl::InvalidArgumentError("it has no one dimension");
      const int64_t dimension = PhysicalDimension(results[0], instruction.dimensions(0));
      for (const ShapeProto& result : results) {
        if (PhysicalDimension(result, instruction.dimensions(0)) != dimension) {
          return absl::UnimplementedError("its results have different layouts");
        }
      }
      descriptor.set_dimension(dimension);
    } else if (kind == CollectiveDescriptor::ALL_TO_ALL) {
      const bool array_form = instruction.dimensions_size() == 1;
      descriptor.set_dimension(array_form ? PhysicalDimension(results[0], instruction.dimensions(0)) : -1);
    }
    return absl::OkStatus();
  }

  void MakeCall(std::vector<ShapeProto> operands, const std::vector<ShapeProto>& results,
                const CollectiveDescriptor& descriptor, HloInstructionProto& call) const {
    if (call.shape().element_type() == kTuple) {
      for (size_t i = 0; i < results.size(); ++i) *call.mutable_shape()->mutable_tuple_shapes(i) = results[i];
    } else {
      *call.mutable_shape() = results[0];
    }
    for (int64_t id : device_operands_) {
      call.add_operand_ids(id);
      operands.push_back(ScalarShape(kU32));
    }
    MakeTypedCall(kCollectiveTarget,
                  absl::StrCat("{", kCollectiveAttribute, " = \"", EncodeCollective(descriptor), "\", ",
                               kNumPartitionsAttribute, " = ", size_.num_partitions, " : i64}"),
                  std::move(operands), call);
    call.set_custom_call_has_side_effect(true);
    ClearCollectiveFields(call);
  }

  static void ClearCollectiveFields(HloInstructionProto& call) {
    call.clear_called_computation_ids();
    call.clear_channel_id();
    call.clear_dimensions();
    call.clear_source_target_pairs();
    call.clear_use_global_device_ids();
    call.clear_replica_groups();
    call.clear_collective_device_list();
    call.clear_iota_collective_device_list();
    call.clear_mesh_axes_replica_group_list();
  }

  HloModuleProto& module_;
  const ProgramSize size_;
  int32_t next_instruction_ = 1;
  std::vector<int64_t> device_operands_;  // of the computation at hand
};

}  // namespace

absl::StatusOr<bool> RewriteCollectives(HloModuleProto& module) {
  ProgramSize size;
  if (module.has_device_assignment()) {
    size.num_replicas = module.device_assignment().replica_count();
    size.num_partitions = module.device_assignment().computation_count();
  }
  if (module.schedule().sequences_size() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("module ", module.name(), " has a schedule: collectives must be rewritten before scheduling"));
  }
  return Rewriter(module, size).Run();
}

}  // namespace openpathways::hlo
