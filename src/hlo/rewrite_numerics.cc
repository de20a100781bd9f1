#include "hlo/rewrite_numerics.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "hlo/computation_editor.h"
#include "hlo/numeric_call.h"
#include "hlo/partial_reduce.h"
#include "hlo/ragged_dot.h"
#include "hlo/shape.h"
#include "hlo/typed_call.h"

namespace openpathways::hlo {
namespace {

constexpr char kLuDecomposition[] = "LuDecomposition";
constexpr char kAllocateBuffer[] = "AllocateBuffer";
constexpr char kTpuKernel[] = "tpu_custom_call";

bool IsCall(const HloInstructionProto& instruction, absl::string_view target) {
  return instruction.opcode() == "custom-call" && instruction.custom_call_target() == target;
}

// XLA's CPU compiler ends its process at one of 2-bit elements, unless it is part of a fusion.
bool IsSubByteConcatenation(const HloInstructionProto& instruction) {
  ShapeProto wide = instruction.shape();
  WidenSubByte(wide);
  return instruction.opcode() == "concatenate" && wide.element_type() != instruction.shape().element_type();
}

bool Concerns(const HloInstructionProto& instruction) {
  return IsSubByteConcatenation(instruction) || instruction.opcode() == kRaggedDotOpcode ||
         IsCall(instruction, kLuDecomposition) || IsCall(instruction, kAllocateBuffer) ||
         IsCall(instruction, kPartialReduceTarget) || IsCall(instruction, kTpuKernel);
}

// Where in the user's program an instruction comes from, as JAX says it: "jit(f)/my_kernel/pallas_call".
std::string Origin(const HloInstructionProto& instruction) {
  const std::string& name = instruction.metadata().op_name();
  return name.empty() ? instruction.name() : name;
}

// JAX puts a kernel's name before the operation that runs it.
std::string KernelName(const HloInstructionProto& instruction) {
  const std::vector<std::string> path = absl::StrSplit(instruction.metadata().op_name(), '/', absl::SkipEmpty());
  if (path.empty()) return instruction.name();
  const bool has_operation = path.size() > 1 && absl::StartsWith(path.back(), "pallas_call");
  return path[path.size() - (has_operation ? 2 : 1)];
}

absl::Status RefuseKernel(const HloInstructionProto& instruction) {
  return absl::UnimplementedError(
      absl::StrCat("Pallas kernel ", KernelName(instruction), " (", Origin(instruction),
                   ") is code for the cores of a TPU (Mosaic), and these devices are emulated by a CPU: pass "
                   "interpret=True to its pallas_call, or run it on real TPUs"));
}

// Types that LAPACK knows stay; narrower ones are computed in f32.
int DecompositionType(int element_type) {
  const bool known = element_type == kF64 || element_type == kC64 || element_type == kC128;
  return known ? element_type : kF32;
}

// [..., rows, columns] with each matrix column-major.
ShapeProto ColumnMajor(const ShapeProto& shape) {
  std::vector<int64_t> order(shape.dimensions_size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 2], order[order.size() - 1]);
  return WithOrder(shape, order);
}

absl::Status RewriteLu(ComputationEditor& editor, HloInstructionProto instruction) {
  if (instruction.operand_ids_size() != 1 || instruction.shape().tuple_shapes_size() != 3) {
    return absl::InvalidArgumentError("it has not one operand and three results");
  }
  ASSIGN_OR_RETURN(const ShapeProto matrices, editor.ShapeOf(instruction.operand_ids(0)));
  if (!IsArray(matrices) || matrices.dimensions_size() < 2) {
    return absl::InvalidArgumentError("its operand is no array of matrices");
  }
  ShapeProto wanted = ColumnMajor(matrices);
  wanted.set_element_type(DecompositionType(matrices.element_type()));
  instruction.set_operand_ids(0, editor.ConvertTo(instruction.operand_ids(0), matrices, wanted));

  const ShapeProto original = instruction.shape();
  const int64_t original_id = instruction.id();
  instruction.set_id(editor.NewId());
  *instruction.mutable_shape()->mutable_tuple_shapes(0) = wanted;
  for (int i : {1, 2}) *instruction.mutable_shape()->mutable_tuple_shapes(i) = RowMajor(original.tuple_shapes(i));
  MakeTypedCall(kLuTarget, "{}", {wanted}, instruction);
  const HloInstructionProto call = instruction;
  editor.Append(std::move(instruction));
  editor.AppendConverted(call, original_id, original);
  return absl::OkStatus();
}

// JAX's lax.empty. What stood in the memory before is nobody's business: it may be another client's.
absl::Status RewriteAllocation(ComputationEditor& editor, HloInstructionProto instruction) {
  if (!IsArray(instruction.shape())) return absl::InvalidArgumentError("it makes no array");
  HloInstructionProto zero;
  zero.set_id(editor.NewId());
  zero.set_name(absl::StrCat(instruction.name(), ".zero"));
  zero.set_opcode("constant");
  *zero.mutable_shape() = ScalarShape(kS32);
  *zero.mutable_literal()->mutable_shape() = zero.shape();
  zero.mutable_literal()->add_s32s(0);
  ShapeProto scalar = ScalarShape(instruction.shape().element_type());
  scalar.mutable_layout()->set_element_size_in_bits(instruction.shape().layout().element_size_in_bits());
  const int64_t zero_id = zero.id();
  editor.Append(std::move(zero));

  HloInstructionProto fill;
  fill.set_id(instruction.id());
  fill.set_name(instruction.name());
  fill.set_opcode("broadcast");
  *fill.mutable_shape() = instruction.shape();
  *fill.mutable_metadata() = instruction.metadata();
  fill.add_operand_ids(editor.ConvertTo(zero_id, ScalarShape(kS32), scalar));
  editor.Append(std::move(fill));
  return absl::OkStatus();
}

absl::Status RewriteConcatenation(ComputationEditor& editor, HloInstructionProto instruction) {
  const ShapeProto original = instruction.shape();
  const int64_t original_id = instruction.id();
  for (int i = 0; i < instruction.operand_ids_size(); ++i) {
    ASSIGN_OR_RETURN(const ShapeProto shape, editor.ShapeOf(instruction.operand_ids(i)));
    ShapeProto wide = shape;
    WidenSubByte(wide);
    instruction.set_operand_ids(i, editor.ConvertTo(instruction.operand_ids(i), shape, wide));
  }
  WidenSubByte(*instruction.mutable_shape());
  instruction.set_id(editor.NewId());
  const HloInstructionProto wide = instruction;
  editor.Append(std::move(instruction));
  editor.AppendConverted(wide, original_id, original);
  return absl::OkStatus();
}

absl::Status Rewrite(ComputationEditor& editor, HloInstructionProto instruction) {
  if (IsCall(instruction, kTpuKernel)) return RefuseKernel(instruction);
  const std::string what = absl::StrCat(instruction.opcode(), " ", Origin(instruction));
  if (instruction.opcode() == kRaggedDotOpcode) {
    return AnnotateStatus(RewriteRaggedDot(editor, std::move(instruction)), what);
  }
  if (IsCall(instruction, kLuDecomposition)) {
    return AnnotateStatus(RewriteLu(editor, std::move(instruction)), what);
  }
  if (IsSubByteConcatenation(instruction)) {
    return AnnotateStatus(RewriteConcatenation(editor, std::move(instruction)), what);
  }
  if (IsCall(instruction, kPartialReduceTarget)) return AnnotateStatus(RewritePartialReduce(editor, instruction), what);
  return AnnotateStatus(RewriteAllocation(editor, std::move(instruction)), what);
}

}  // namespace

absl::StatusOr<bool> RewriteNumerics(HloModuleProto& module) {
  bool changed = false;
  for (HloComputationProto& computation : *module.mutable_computations()) {
    // What stands in a fusion has been found good for it.
    if (computation.is_fusion_computation() || !absl::c_any_of(computation.instructions(), Concerns)) continue;
    ComputationEditor editor(computation);
    RETURN_IF_ERROR(editor.ForEach([&](HloInstructionProto instruction) -> absl::Status {
      if (Concerns(instruction)) return Rewrite(editor, std::move(instruction));
      editor.Append(std::move(instruction));
      return absl::OkStatus();
    }));
    changed = true;
  }
  return changed;
}

}  // namespace openpathways::hlo
