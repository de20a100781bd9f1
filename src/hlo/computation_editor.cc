#include "hlo/computation_editor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/shape.h"

namespace openpathways::hlo {

ComputationEditor::ComputationEditor(HloComputationProto& computation)
    : computation_(computation), next_id_(computation.id() << 32) {
  for (const HloInstructionProto& instruction : computation.instructions()) {
    next_id_ = std::max(next_id_, instruction.id() + 1);
  }
}

int64_t ComputationEditor::AddFirst(HloInstructionProto instruction) {
  const int64_t id = NewId();
  instruction.set_id(id);
  instruction.set_name(absl::StrCat(instruction.name(), ".", id >> 32, ".", id & 0xffffffff));
  Append(std::move(instruction));
  return id;
}

absl::Status ComputationEditor::ForEach(absl::FunctionRef<absl::Status(HloInstructionProto)> visit) {
  for (HloInstructionProto& instruction : *computation_.mutable_instructions()) {
    RETURN_IF_ERROR(visit(std::move(instruction)));
  }
  computation_.mutable_instructions()->Swap(&instructions_);
  return absl::OkStatus();
}

void ComputationEditor::Append(HloInstructionProto instruction) {
  shapes_[instruction.id()] = instruction.shape();
  *instructions_.Add() = std::move(instruction);
}

absl::StatusOr<ShapeProto> ComputationEditor::ShapeOf(int64_t id) const {
  auto it = shapes_.find(id);
  if (it == shapes_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("operand ", id, " does not come before its user"));
  }
  return it->second;
}

HloInstructionProto ComputationEditor::MakeUnary(const std::string& opcode, int64_t id, int64_t operand,
                                                 const ShapeProto& shape) const {
  HloInstructionProto instruction;
  instruction.set_name(absl::StrCat("pathways-", opcode, ".", id >> 32, ".", id & 0xffffffff));
  instruction.set_opcode(opcode);
  instruction.set_id(id);
  instruction.add_operand_ids(operand);
  *instruction.mutable_shape() = shape;
  return instruction;
}

int64_t ComputationEditor::ConvertTo(int64_t id, const ShapeProto& from, const ShapeProto& to) {
  ShapeProto converted = from;
  if (from.element_type() != to.element_type()) {
    converted.set_element_type(to.element_type());
    converted.mutable_layout()->clear_element_size_in_bits();
    Append(MakeUnary("convert", NewId(), id, converted));
    id = instructions_.rbegin()->id();
  }
  if (SameLayout(converted, to)) return id;
  Append(MakeUnary("copy", NewId(), id, to));
  return instructions_.rbegin()->id();
}

void ComputationEditor::AppendConvertedArray(int64_t operand, const ShapeProto& from, int64_t id,
                                             const ShapeProto& shape) {
  ShapeProto converted = shape;
  *converted.mutable_layout()->mutable_minor_to_major() = from.layout().minor_to_major();
  const bool same_order = SameLayout(converted, shape);
  if (from.element_type() != shape.element_type()) {
    const int64_t converted_id = same_order ? id : NewId();
    Append(MakeUnary("convert", converted_id, operand, converted));
    if (same_order) return;
    operand = converted_id;
  }
  Append(MakeUnary("copy", id, operand, shape));
}

void ComputationEditor::AppendConverted(const HloInstructionProto& value, int64_t id, const ShapeProto& shape) {
  if (shape.element_type() != kTuple) return AppendConvertedArray(value.id(), value.shape(), id, shape);
  std::vector<int64_t> elements;
  for (int i = 0; i < shape.tuple_shapes_size(); ++i) {
    const ShapeProto& from = value.shape().tuple_shapes(i);
    HloInstructionProto element = MakeUnary("get-tuple-element", NewId(), value.id(), from);
    element.set_tuple_index(i);
    elements.push_back(element.id());
    Append(std::move(element));
    if (SameLayout(from, shape.tuple_shapes(i))) continue;
    const int64_t converted = NewId();
    AppendConvertedArray(elements.back(), from, converted, shape.tuple_shapes(i));
    elements.back() = converted;
  }
  HloInstructionProto tuple = MakeUnary("tuple", id, elements[0], shape);
  for (size_t i = 1; i < elements.size(); ++i) tuple.add_operand_ids(elements[i]);
  Append(std::move(tuple));
}

}  // namespace openpathways::hlo
