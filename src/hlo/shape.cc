#include "hlo/shape.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace openpathways::hlo {
namespace {

constexpr int kOpaque = 14;
constexpr int kToken = 17;

// xla.PrimitiveType of the carrier; 0: none needed.
int CarrierOf(int element_type) {
  switch (element_type) {
    case 21:  // S4
    case 26:  // S2
      return 2;
    case 22:  // U4
    case 27:  // U2
      return 6;
    case 32:  // F4E2M1FN
      return 10;
    default:
      return 0;
  }
}

}  // namespace

bool IsArray(const ShapeProto& shape) {
  return shape.element_type() != 0 && shape.element_type() != kTuple && shape.element_type() != kOpaque &&
         shape.element_type() != kToken;
}

ShapeProto ScalarShape(int element_type) {
  ShapeProto shape;
  shape.set_element_type(element_type);
  shape.mutable_layout();  // present, though empty
  return shape;
}

ShapeProto VectorShape(int element_type, int64_t size) {
  ShapeProto shape = ScalarShape(element_type);
  shape.add_dimensions(size);
  shape.add_is_dynamic_dimension(false);
  shape.mutable_layout()->add_minor_to_major(0);
  return shape;
}

std::vector<ShapeProto> Leaves(const ShapeProto& shape) {
  if (shape.element_type() != kTuple) return {shape};
  return std::vector<ShapeProto>(shape.tuple_shapes().begin(), shape.tuple_shapes().end());
}

int64_t PhysicalDimension(const ShapeProto& shape, int64_t dimension) {
  const auto& minor_to_major = shape.layout().minor_to_major();
  for (int i = 0; i < minor_to_major.size(); ++i) {
    if (minor_to_major[i] == dimension) return minor_to_major.size() - 1 - i;
  }
  return dimension;
}

absl::StatusOr<CollectiveDescriptor::Array> PhysicalArray(const ShapeProto& shape) {
  if (!IsArray(shape)) return absl::UnimplementedError(absl::StrCat("a value of type ", shape.element_type()));
  if (shape.layout().minor_to_major_size() != shape.dimensions_size()) {
    return absl::UnimplementedError("an array without a layout");
  }
  for (bool dynamic : shape.is_dynamic_dimension()) {
    if (dynamic) return absl::UnimplementedError("an array of dynamic shape");
  }
  CollectiveDescriptor::Array array;
  array.set_element_type(shape.element_type());
  for (int i = shape.dimensions_size(); i-- > 0;) {
    array.add_dims(shape.dimensions(static_cast<int>(shape.layout().minor_to_major(i))));
  }
  return array;
}

ShapeProto WithOrder(ShapeProto shape, absl::Span<const int64_t> major_to_minor) {
  shape.mutable_layout()->mutable_minor_to_major()->Assign(major_to_minor.rbegin(), major_to_minor.rend());
  return shape;
}

ShapeProto RowMajor(ShapeProto shape) {
  std::vector<int64_t> order(shape.dimensions_size());
  absl::c_iota(order, 0);
  return WithOrder(std::move(shape), order);
}

bool SameLayout(const ShapeProto& a, const ShapeProto& b) {
  return a.element_type() == b.element_type() && a.layout().SerializeAsString() == b.layout().SerializeAsString();
}

void WidenSubByte(ShapeProto& shape) {
  const int carrier = CarrierOf(shape.element_type());
  if (carrier == 0) return;
  shape.set_element_type(carrier);
  shape.mutable_layout()->clear_element_size_in_bits();
}

}  // namespace openpathways::hlo
