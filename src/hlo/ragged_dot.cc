// Facts: StableHLO's chlo.ragged_dot and openxla/xla, xla/xla_data.proto (RaggedDotDimensionNumbers). Which rows of the
// left factor belong to which group depends on where its ragged dimension is: among the rows (each group has its own
// right factor), among the contracted dimensions (each group gives its own result), or among the batches (the groups do
// not matter to the result).
#include "hlo/ragged_dot.h"

#include <array>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "hlo/numeric_call.h"
#include "hlo/shape.h"
#include "hlo/typed_call.h"

namespace openpathways::hlo {
namespace {

using Dims = std::vector<int64_t>;

Dims ToDims(const google::protobuf::RepeatedField<int64_t>& field) { return Dims(field.begin(), field.end()); }

// The dimensions below `rank` that none of `lists` names, ascending.
Dims Others(int64_t rank, std::initializer_list<const Dims*> lists) {
  Dims others;
  for (int64_t d = 0; d < rank; ++d) {
    if (absl::c_none_of(lists, [d](const Dims* list) { return absl::c_linear_search(*list, d); })) others.push_back(d);
  }
  return others;
}

Dims Concatenated(std::initializer_list<absl::Span<const int64_t>> lists) {
  Dims all;
  for (absl::Span<const int64_t> list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Dims Iota(int64_t rank) {
  Dims dims(rank);
  absl::c_iota(dims, 0);
  return dims;
}

int64_t SizeOf(const ShapeProto& shape, absl::Span<const int64_t> dims) {
  int64_t size = 1;
  for (int64_t d : dims) size *= shape.dimensions(static_cast<int>(d));
  return size;
}

absl::Status CheckDims(const Dims& dims, int64_t rank) {
  for (int64_t d : dims) {
    if (d < 0 || d >= rank) return absl::InvalidArgumentError(absl::StrCat("it has no dimension ", d));
  }
  return absl::OkStatus();
}

bool IsComplex(int type) { return type == kC64 || type == kC128; }
bool IsInteger(int type) {
  // PRED, S8 to S64, U8 to U64, S4, U4, S2, U2, S1, U1.
  return (type >= 1 && type <= 9) || type == 21 || type == 22 || type == 26 || type == 27 || type == 30 || type == 31;
}

// The element type in which to compute. Integers wrap around, so that their width beyond the result's does not matter.
int ComputeType(int left, int right, int result) {
  const bool wide = absl::c_any_of(std::array{left, right, result}, [](int t) { return t == kF64 || t == kC128; });
  if (IsComplex(left) || IsComplex(right) || IsComplex(result)) return wide ? kC128 : kC64;
  if (IsInteger(result)) return result == kS64 || result == kU64 ? kS64 : kS32;
  return wide ? kF64 : kF32;
}

// The parts of a list of dimensions before and after `dim`, which is in it.
std::pair<Dims, Dims> SplitAt(const Dims& dims, int64_t dim) {
  auto at = absl::c_find(dims, dim);
  return {Dims(dims.begin(), at), Dims(at + 1, dims.end())};
}

// A ragged-dot, with its shapes and dimensions at hand.
struct Parts {
  ShapeProto left, right, sizes;
  Dims left_batch, right_batch, left_contracted, right_contracted, left_rows;
  int64_t ragged = 0;
  std::optional<int64_t> group;  // dimension of the right factor
};

absl::StatusOr<Parts> Read(const ComputationEditor& editor, const HloInstructionProto& instruction) {
  if (instruction.operand_ids_size() != 3) return absl::InvalidArgumentError("it has not three operands");
  Parts parts;
  ASSIGN_OR_RETURN(parts.left, editor.ShapeOf(instruction.operand_ids(0)));
  ASSIGN_OR_RETURN(parts.right, editor.ShapeOf(instruction.operand_ids(1)));
  ASSIGN_OR_RETURN(parts.sizes, editor.ShapeOf(instruction.operand_ids(2)));
  const RaggedDotDimensionNumbers& numbers = instruction.ragged_dot_dimension_numbers();
  parts.left_batch = ToDims(numbers.dot_dimension_numbers().lhs_batch_dimensions());
  parts.right_batch = ToDims(numbers.dot_dimension_numbers().rhs_batch_dimensions());
  parts.left_contracted = ToDims(numbers.dot_dimension_numbers().lhs_contracting_dimensions());
  parts.right_contracted = ToDims(numbers.dot_dimension_numbers().rhs_contracting_dimensions());
  if (numbers.lhs_ragged_dimensions_size() != 1 || numbers.rhs_group_dimensions_size() > 1) {
    return absl::InvalidArgumentError("it has not one ragged dimension and at most one of groups");
  }
  parts.ragged = numbers.lhs_ragged_dimensions(0);
  if (numbers.rhs_group_dimensions_size() == 1) parts.group = numbers.rhs_group_dimensions(0);
  if (!IsArray(parts.left) || !IsArray(parts.right) || !IsArray(parts.sizes) || !IsArray(instruction.shape()) ||
      parts.sizes.dimensions_size() < 1 || parts.left_batch.size() != parts.right_batch.size() ||
      parts.left_contracted.size() != parts.right_contracted.size()) {
    return absl::InvalidArgumentError("its operands do not fit its dimensions");
  }
  RETURN_IF_ERROR(
      CheckDims(Concatenated({parts.left_batch, parts.left_contracted, {parts.ragged}}), parts.left.dimensions_size()));
  Dims right_dims = Concatenated({parts.right_batch, parts.right_contracted});
  if (parts.group.has_value()) right_dims.push_back(*parts.group);
  RETURN_IF_ERROR(CheckDims(right_dims, parts.right.dimensions_size()));
  parts.left_rows = Others(parts.left.dimensions_size(), {&parts.left_batch, &parts.left_contracted});
  return parts;
}

// The call, and its factors in the order that it wants.
struct Call {
  RaggedDot dot;
  Dims left_order, right_order;
};

// [batch, prefix, ragged, suffix, contracted] x [batch, group, contracted, columns]
absl::StatusOr<Call> RaggedRows(const Parts& parts) {
  if (!parts.group.has_value()) return absl::InvalidArgumentError("its right factor has no dimension of groups");
  const auto [prefix, suffix] = SplitAt(parts.left_rows, parts.ragged);
  const Dims group = {*parts.group};
  const Dims columns = Others(parts.right.dimensions_size(), {&parts.right_batch, &parts.right_contracted, &group});
  Call call;
  call.dot.mode = RaggedDot::kRows;
  call.dot.batch = SizeOf(parts.left, parts.left_batch);
  call.dot.prefix = SizeOf(parts.left, prefix);
  call.dot.ragged = parts.left.dimensions(static_cast<int>(parts.ragged));
  call.dot.suffix = SizeOf(parts.left, suffix);
  call.dot.groups = SizeOf(parts.right, group);
  call.dot.left = SizeOf(parts.left, parts.left_contracted);
  call.dot.right = SizeOf(parts.right, columns);
  call.left_order = Concatenated({parts.left_batch, parts.left_rows, parts.left_contracted});
  call.right_order = Concatenated({parts.right_batch, group, parts.right_contracted, columns});
  return call;
}

// [batch, prefix, ragged, suffix, rows] x [batch, prefix, ragged, suffix, columns], where prefix, ragged and suffix
// are contracted.
absl::StatusOr<Call> RaggedContracted(const Parts& parts) {
  if (parts.group.has_value()) return absl::InvalidArgumentError("its right factor has a dimension of groups");
  const auto [prefix, suffix] = SplitAt(parts.left_contracted, parts.ragged);
  const Dims columns = Others(parts.right.dimensions_size(), {&parts.right_batch, &parts.right_contracted});
  Call call;
  call.dot.mode = RaggedDot::kContracted;
  call.dot.batch = SizeOf(parts.left, parts.left_batch);
  call.dot.prefix = SizeOf(parts.left, prefix);
  call.dot.ragged = parts.left.dimensions(static_cast<int>(parts.ragged));
  call.dot.suffix = SizeOf(parts.left, suffix);
  call.dot.groups = parts.sizes.dimensions(parts.sizes.dimensions_size() - 1);
  call.dot.left = SizeOf(parts.left, parts.left_rows);
  call.dot.right = SizeOf(parts.right, columns);
  call.left_order = Concatenated({parts.left_batch, parts.left_contracted, parts.left_rows});
  call.right_order = Concatenated({parts.right_batch, parts.right_contracted, columns});
  return call;
}

// An ordinary product of matrices: one group that has everything.
Call RaggedBatches(const Parts& parts) {
  const Dims columns = Others(parts.right.dimensions_size(), {&parts.right_batch, &parts.right_contracted});
  Call call;
  call.dot.mode = RaggedDot::kAllRows;
  call.dot.batch = SizeOf(parts.left, parts.left_batch);
  call.dot.ragged = SizeOf(parts.left, parts.left_rows);
  call.dot.left = SizeOf(parts.left, parts.left_contracted);
  call.dot.right = SizeOf(parts.right, columns);
  call.left_order = Concatenated({parts.left_batch, parts.left_rows, parts.left_contracted});
  call.right_order = Concatenated({parts.right_batch, parts.right_contracted, columns});
  return call;
}

absl::StatusOr<Call> MakeCall(const Parts& parts) {
  if (absl::c_linear_search(parts.left_batch, parts.ragged)) return RaggedBatches(parts);
  if (absl::c_linear_search(parts.left_contracted, parts.ragged)) return RaggedContracted(parts);
  return RaggedRows(parts);
}

// The shape in which an operand is passed: its dimensions in this order in memory.
absl::StatusOr<ShapeProto> Wanted(const ShapeProto& shape, absl::Span<const int64_t> order, int type) {
  if (static_cast<int>(order.size()) != shape.dimensions_size()) {
    return absl::InvalidArgumentError("its dimensions are not those of its operands");
  }
  ShapeProto wanted = WithOrder(shape, order);
  wanted.set_element_type(type);
  wanted.mutable_layout()->clear_element_size_in_bits();
  return wanted;
}

}  // namespace

absl::Status RewriteRaggedDot(ComputationEditor& editor, HloInstructionProto instruction) {
  ASSIGN_OR_RETURN(const Parts parts, Read(editor, instruction));
  ASSIGN_OR_RETURN(Call call, MakeCall(parts));
  call.dot.own_sizes = parts.sizes.dimensions_size() > 1 ? 1 : 0;
  const ShapeProto original = instruction.shape();
  const int type = ComputeType(parts.left.element_type(), parts.right.element_type(), original.element_type());
  const std::array shapes = {parts.left, parts.right, parts.sizes};
  const std::array orders = {call.left_order, call.right_order, Iota(parts.sizes.dimensions_size())};
  std::vector<ShapeProto> operands;
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(ShapeProto wanted, Wanted(shapes[i], orders[i], i == 2 ? kS64 : type));
    instruction.set_operand_ids(i, editor.ConvertTo(instruction.operand_ids(i), shapes[i], wanted));
    operands.push_back(std::move(wanted));
  }
  ASSIGN_OR_RETURN(*instruction.mutable_shape(), Wanted(original, Iota(original.dimensions_size()), type));
  MakeTypedCall(kRaggedDotTarget, EncodeRaggedDot(call.dot), std::move(operands), instruction);
  instruction.clear_ragged_dot_dimension_numbers();
  const int64_t id = instruction.id();
  instruction.set_id(editor.NewId());
  const HloInstructionProto made = instruction;
  editor.Append(std::move(instruction));
  editor.AppendConverted(made, id, original);
  return absl::OkStatus();
}

}  // namespace openpathways::hlo
