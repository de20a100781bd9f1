// Facts: openxla/xla, xla/hlo/builder/lib/approx_topk.cc. The operands are the arrays (values, then what belongs to
// them), then an initial value for each; the called computation compares two elements as a sort's does.
#include "hlo/partial_reduce.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/shape.h"

namespace openpathways::hlo {
namespace {

// The dimension in which `to` is shorter than `from`, or -1 unless it is the only one in which they differ.
int ShortenedDimension(const ShapeProto& from, const ShapeProto& to) {
  if (from.dimensions_size() != to.dimensions_size()) return -1;
  int shortened = -1;
  for (int d = 0; d < from.dimensions_size(); ++d) {
    if (from.dimensions(d) == to.dimensions(d)) continue;
    if (shortened >= 0 || from.dimensions(d) < to.dimensions(d)) return -1;
    shortened = d;
  }
  return shortened;
}

HloInstructionProto NewInstruction(ComputationEditor& editor, const std::string& opcode, const std::string& name) {
  HloInstructionProto instruction;
  instruction.set_opcode(opcode);
  instruction.set_id(editor.NewId());
  instruction.set_name(name);
  return instruction;
}

absl::StatusOr<HloInstructionProto> Sorted(ComputationEditor& editor, const HloInstructionProto& instruction) {
  HloInstructionProto sort = NewInstruction(editor, "sort", absl::StrCat(instruction.name(), ".sorted"));
  sort.mutable_shape()->set_element_type(kTuple);
  *sort.mutable_called_computation_ids() = instruction.called_computation_ids();
  *sort.mutable_metadata() = instruction.metadata();
  for (int i = 0; i < instruction.shape().tuple_shapes_size(); ++i) {
    ASSIGN_OR_RETURN(const ShapeProto shape, editor.ShapeOf(instruction.operand_ids(i)));
    const int dimension = ShortenedDimension(shape, instruction.shape().tuple_shapes(i));
    if (dimension < 0 || (i > 0 && dimension != sort.dimensions(0))) {
      return absl::InvalidArgumentError("its operands do not all get shorter in one dimension");
    }
    if (i == 0) sort.add_dimensions(dimension);
    const ShapeProto wanted = RowMajor(shape);
    sort.add_operand_ids(editor.ConvertTo(instruction.operand_ids(i), shape, wanted));
    *sort.mutable_shape()->add_tuple_shapes() = wanted;
  }
  return sort;
}

// Appends the beginning of array `i` of the tuple `sorted`, as long as `shape` says, and returns its id.
int64_t AppendBest(ComputationEditor& editor, const HloInstructionProto& sorted, int i, const ShapeProto& shape) {
  HloInstructionProto element = NewInstruction(editor, "get-tuple-element", absl::StrCat(sorted.name(), ".", i));
  element.set_tuple_index(i);
  element.add_operand_ids(sorted.id());
  *element.mutable_shape() = sorted.shape().tuple_shapes(i);
  HloInstructionProto best = NewInstruction(editor, "slice", absl::StrCat(sorted.name(), ".best.", i));
  best.add_operand_ids(element.id());
  *best.mutable_shape() = shape;
  for (int64_t size : shape.dimensions()) {
    HloInstructionProto::SliceDimensions& range = *best.add_slice_dimensions();
    range.set_limit(size);
    range.set_stride(1);
  }
  const int64_t id = best.id();
  editor.Append(std::move(element));
  editor.Append(std::move(best));
  return id;
}

}  // namespace

absl::Status RewritePartialReduce(ComputationEditor& editor, const HloInstructionProto& instruction) {
  const int count = instruction.shape().tuple_shapes_size();
  if (count == 0 || instruction.operand_ids_size() != 2 * count || instruction.called_computation_ids_size() != 1) {
    return absl::InvalidArgumentError("it has not an operand, an initial value and a result for each array");
  }
  ASSIGN_OR_RETURN(const HloInstructionProto sorted, Sorted(editor, instruction));
  editor.Append(sorted);
  HloInstructionProto best = NewInstruction(editor, "tuple", absl::StrCat(instruction.name(), ".best"));
  best.mutable_shape()->set_element_type(kTuple);
  for (int i = 0; i < count; ++i) {
    const ShapeProto shape = RowMajor(instruction.shape().tuple_shapes(i));
    best.add_operand_ids(AppendBest(editor, sorted, i, shape));
    *best.mutable_shape()->add_tuple_shapes() = shape;
  }
  editor.Append(best);
  editor.AppendConverted(best, instruction.id(), instruction.shape());
  return absl::OkStatus();
}

}  // namespace openpathways::hlo
