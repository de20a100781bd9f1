#include "proxy/wire_types.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "ifrt/op_sharding.h"

namespace openpathways::proxy {
namespace {

using xla::ifrt::DTypeProto;

// No array and no host buffer may be larger, in elements or bytes, so that sums of a few sizes cannot overflow either.
constexpr int64_t kMaxSize = int64_t{1} << 62;
constexpr size_t kMaxRank = 255;

// False on overflow of kMaxSize. Both arguments are not negative.
bool Multiply(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product) && *product <= kMaxSize;
}

// Where DTypeProto.Kind and xla.PrimitiveType (= ifrt::DType) have different numbers.
constexpr std::pair<DTypeProto::Kind, ifrt::DType> kRenumbered[] = {
    {DTypeProto::KIND_S1, ifrt::DType::kS1},
    {DTypeProto::KIND_U1, ifrt::DType::kU1},
    {DTypeProto::KIND_F4E2M1FN, ifrt::DType::kF4E2M1FN},
    {DTypeProto::KIND_F8E8M0FNU, ifrt::DType::kF8E8M0FNU},
    {DTypeProto::KIND_F6E2M3FN, ifrt::DType::kF6E2M3FN},
    {DTypeProto::KIND_F6E3M2FN, ifrt::DType::kF6E3M2FN},
};

template <typename Message>
absl::StatusOr<Message> Parse(const xla::ifrt::Serialized& serialized) {
  Message message;
  if (!message.ParseFromString(serialized.data())) {
    return absl::InvalidArgumentError(absl::StrCat("Bad serialized ", serialized.type_name()));
  }
  return message;
}

absl::StatusOr<ifrt::DeviceList> FindDevices(const xla::ifrt::DeviceListProto& proto, const ifrt::DeviceIds& ids) {
  if (proto.device_ids().empty()) return absl::InvalidArgumentError("a sharding needs at least one device");
  absl::flat_hash_set<int32_t> seen;
  for (int32_t id : proto.device_ids()) {
    if (!seen.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat("device ", id, " occurs twice in the device list of a sharding"));
    }
  }
  return ids.FindAll(absl::MakeConstSpan(proto.device_ids().data(), proto.device_ids_size()));
}

template <typename Proto>
absl::StatusOr<std::string> MemoryKindOf(const Proto& proto) {
  return MemoryKindFromName(proto.has_memory_kind() ? proto.memory_kind() : "");
}

absl::StatusOr<ifrt::ShardingRef> FromHloSharding(const xla::ifrt::HloShardingProto& proto,
                                                  const ifrt::DeviceIds& ids) {
  ASSIGN_OR_RETURN(ifrt::DeviceList devices, FindDevices(proto.devices(), ids));
  ASSIGN_OR_RETURN(std::string memory_kind, MemoryKindOf(proto));
  ASSIGN_OR_RETURN(ifrt::Sharding::Partitioning partitioning,
                   ifrt::PartitioningFromOpSharding(proto.xla_op_sharding(), static_cast<int>(devices.size())));
  return ifrt::Sharding::Create(std::move(devices), std::move(memory_kind), std::move(partitioning));
}

absl::StatusOr<ifrt::ShardingRef> FromConcreteSharding(const xla::ifrt::ConcreteShardingProto& proto,
                                                       const ifrt::DeviceIds& ids) {
  if (proto.has_dynamic_shape() || !proto.shard_dynamic_shapes().empty()) {
    return absl::UnimplementedError("arrays of dynamic shape (ConcreteSharding with dynamic_shape) are not supported");
  }
  ASSIGN_OR_RETURN(ifrt::DeviceList devices, FindDevices(proto.devices(), ids));
  ASSIGN_OR_RETURN(std::string memory_kind, MemoryKindOf(proto));
  ifrt::Sharding::Concrete concrete;
  for (const xla::ifrt::ShapeProto& shape : proto.shard_shapes()) {
    ASSIGN_OR_RETURN(concrete.shard_shapes.emplace_back(), FromProto(shape));
  }
  return ifrt::Sharding::Create(std::move(devices), std::move(memory_kind), std::move(concrete));
}

absl::StatusOr<ifrt::ShardingRef> FromConcreteEvenSharding(const xla::ifrt::ConcreteEvenShardingProto& proto,
                                                           const ifrt::DeviceIds& ids) {
  ASSIGN_OR_RETURN(ifrt::DeviceList devices, FindDevices(proto.devices(), ids));
  ASSIGN_OR_RETURN(std::string memory_kind, MemoryKindOf(proto));
  ASSIGN_OR_RETURN(ifrt::Shape shape, FromProto(proto.shape()));
  ASSIGN_OR_RETURN(ifrt::Shape shard_shape, FromProto(proto.shard_shape()));
  if (proto.is_fully_replicated()) {
    if (shape != shard_shape) {
      return absl::InvalidArgumentError(absl::StrCat("a fully replicated sharding of shape ", ifrt::ToString(shape),
                                                     " has shards of shape ", ifrt::ToString(shard_shape)));
    }
    return ifrt::Sharding::Create(std::move(devices), std::move(memory_kind), ifrt::Sharding::Replicated{});
  }
  ifrt::Sharding::Concrete concrete;
  concrete.shard_shapes.assign(devices.size(), shard_shape);
  return ifrt::Sharding::Create(std::move(devices), std::move(memory_kind), std::move(concrete));
}

absl::StatusOr<std::vector<int64_t>> CheckedOrder(std::vector<int64_t> minor_to_major, const ifrt::Shape& shape) {
  std::vector<bool> seen(shape.size(), false);
  for (int64_t dim : minor_to_major) {
    if (minor_to_major.size() != shape.size() || dim < 0 || dim >= static_cast<int64_t>(shape.size()) || seen[dim]) {
      return absl::InvalidArgumentError(absl::StrCat("the layout {", absl::StrJoin(minor_to_major, ","),
                                                     "} (minor to major) is none of the shape ",
                                                     ifrt::ToString(shape)));
    }
    seen[dim] = true;
  }
  return ifrt::UnlessRowMajor(std::move(minor_to_major), shape);
}

}  // namespace

tensorflow::StatusProto ToProto(const absl::Status& status) {
  tensorflow::StatusProto proto;
  proto.set_code(static_cast<tensorflow::error::Code>(status.code()));
  proto.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view key, const absl::Cord& payload) {
    (*proto.mutable_payload())[std::string(key)] = std::string(payload);
  });
  return proto;
}

absl::Status FromProto(const tensorflow::StatusProto& proto) {
  absl::StatusCode code = static_cast<absl::StatusCode>(proto.code());
  if (!tensorflow::error::Code_IsValid(proto.code())) code = absl::StatusCode::kUnknown;
  absl::Status status(code, proto.message());
  for (const auto& [key, payload] : proto.payload()) status.SetPayload(key, absl::Cord(payload));
  return status;
}

absl::StatusOr<ifrt::DType> FromProto(const DTypeProto& proto) {
  for (const auto& [kind, dtype] : kRenumbered) {
    if (kind == proto.kind()) return dtype;
  }
  if (!DTypeProto::Kind_IsValid(proto.kind()) || proto.kind() == DTypeProto::KIND_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("Unknown dtype ", proto.kind()));
  }
  if (proto.kind() == DTypeProto::KIND_OPAQUE) {
    return absl::InvalidArgumentError("Arrays of dtype OPAQUE cannot be stored");
  }
  return static_cast<ifrt::DType>(proto.kind());
}

DTypeProto ToProto(ifrt::DType dtype) {
  DTypeProto proto;
  proto.set_kind(static_cast<DTypeProto::Kind>(dtype));
  for (const auto& [kind, renumbered] : kRenumbered) {
    if (renumbered == dtype) proto.set_kind(kind);
  }
  return proto;
}

absl::StatusOr<ifrt::Shape> ShapeFromDims(absl::Span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("a shape has ", dims.size(), " dimensions"));
  }
  int64_t elements = 1;  // as if empty dimensions had one element, so that every part of the shape is bounded
  for (int64_t dim : dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shape [", absl::StrJoin(dims, ","), "] has a negative dimension"));
    }
    // 16 bytes is the largest element.
    int64_t bytes;
    if (!Multiply(elements, std::max<int64_t>(dim, 1), &elements) || !Multiply(elements, 16, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("the shape [", absl::StrJoin(dims, ","), "] is too large"));
    }
  }
  return ifrt::Shape(dims.begin(), dims.end());
}

absl::StatusOr<ifrt::Shape> FromProto(const xla::ifrt::ShapeProto& proto) {
  return ShapeFromDims(absl::MakeConstSpan(proto.dims().data(), proto.dims_size()));
}

xla::ifrt::ShapeProto ToProto(const ifrt::Shape& shape) {
  xla::ifrt::ShapeProto proto;
  proto.mutable_dims()->Add(shape.begin(), shape.end());
  return proto;
}

absl::StatusOr<ifrt::CopySemantics> FromProto(xla::ifrt::proto::ArrayCopySemantics semantics) {
  switch (semantics) {
    case xla::ifrt::proto::ARRAY_COPY_SEMANTICS_ALWAYS_COPY:
      return ifrt::CopySemantics::kAlwaysCopy;
    case xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT:
      return ifrt::CopySemantics::kReuseInput;
    case xla::ifrt::proto::ARRAY_COPY_SEMANTICS_DONATE_INPUT:
      return ifrt::CopySemantics::kDonateInput;
    default:
      return absl::InvalidArgumentError(absl::StrCat("Unknown array copy semantics ", semantics));
  }
}

absl::StatusOr<std::string> MemoryKindFromName(const std::string& name) {
  if (name.empty() || name == ifrt::kMemoryKinds[0]) return std::string();
  for (const char* kind : ifrt::kMemoryKinds) {
    if (name == kind) return name;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Unknown memory kind '", name, "'; there are: ", absl::StrJoin(ifrt::kMemoryKinds, ", ")));
}

absl::StatusOr<ifrt::ShardingRef> FromProto(const xla::ifrt::ShardingProto& proto, const ifrt::DeviceIds& ids) {
  const xla::ifrt::Serialized& serialized = proto.serialized_sharding();
  const std::string& type = serialized.type_name();
  if (type == "xla::ifrt::HloSharding") {
    ASSIGN_OR_RETURN(auto sharding, Parse<xla::ifrt::HloShardingProto>(serialized));
    return FromHloSharding(sharding, ids);
  }
  if (type == "xla::ifrt::SingleDeviceSharding") {
    ASSIGN_OR_RETURN(auto sharding, Parse<xla::ifrt::SingleDeviceShardingProto>(serialized));
    ASSIGN_OR_RETURN(const ifrt::Device* device, ids.Find(sharding.device_id()));
    ASSIGN_OR_RETURN(std::string memory_kind, MemoryKindOf(sharding));
    return ifrt::Sharding::SingleDevice(device, std::move(memory_kind));
  }
  if (type == "xla::ifrt::OpaqueSharding") {
    ASSIGN_OR_RETURN(auto sharding, Parse<xla::ifrt::OpaqueShardingProto>(serialized));
    ASSIGN_OR_RETURN(ifrt::DeviceList devices, FindDevices(sharding.devices(), ids));
    ASSIGN_OR_RETURN(std::string memory_kind, MemoryKindOf(sharding));
    return ifrt::Sharding::Create(std::move(devices), std::move(memory_kind), ifrt::Sharding::Opaque{});
  }
  if (type == "xla::ifrt::ConcreteSharding") {
    ASSIGN_OR_RETURN(auto sharding, Parse<xla::ifrt::ConcreteShardingProto>(serialized));
    return FromConcreteSharding(sharding, ids);
  }
  if (type == "xla::ifrt::ConcreteEvenSharding") {
    ASSIGN_OR_RETURN(auto sharding, Parse<xla::ifrt::ConcreteEvenShardingProto>(serialized));
    return FromConcreteEvenSharding(sharding, ids);
  }
  if (type.empty()) return absl::InvalidArgumentError("the request has no sharding");
  return absl::UnimplementedError(absl::StrCat("shardings of type '", type, "' are not supported"));
}

std::optional<xla::OpSharding> ToOpSharding(const ifrt::Sharding& sharding) {
  xla::OpSharding proto;
  if (const auto* replicated = std::get_if<ifrt::Sharding::Replicated>(&sharding.partitioning())) {
    proto.set_type(replicated->same_values ? xla::OpSharding::REPLICATED : xla::OpSharding::MANUAL);
    return proto;
  }
  const auto* tiles = std::get_if<ifrt::TileAssignment>(&sharding.partitioning());
  if (tiles == nullptr) return std::nullopt;
  proto.set_type(xla::OpSharding::OTHER);
  proto.mutable_tile_assignment_dimensions()->Add(tiles->dims.begin(), tiles->dims.end());
  proto.mutable_tile_assignment_devices()->Add(tiles->devices.begin(), tiles->devices.end());
  if (tiles->subgroup_dims == 1 && tiles->subgroups_are_replicas) {
    proto.set_replicate_on_last_tile_dim(true);
  } else {
    for (int i = 0; i < tiles->subgroup_dims; ++i) {
      proto.add_last_tile_dims(tiles->subgroups_are_replicas ? xla::OpSharding::REPLICATED : xla::OpSharding::MANUAL);
    }
  }
  return proto;
}

xla::ifrt::ShardingProto ToProto(const ifrt::Sharding& sharding, const ifrt::Shape& shape,
                                 const std::string& op_sharding, const ifrt::DeviceIds& ids) {
  xla::ifrt::DeviceListProto devices;
  for (const ifrt::Device* device : sharding.devices()) devices.add_device_ids(ids.id(*device));
  xla::ifrt::ShardingProto result;
  xla::ifrt::Serialized& serialized = *result.mutable_serialized_sharding();
  auto serialize = [&](const char* type, auto proto) {
    *proto.mutable_devices() = std::move(devices);
    if (!sharding.memory_kind().empty() && sharding.memory_kind() != ifrt::kMemoryKinds[0]) {
      proto.set_memory_kind(sharding.memory_kind());
    }
    serialized.set_type_name(type);
    serialized.set_data(proto.SerializeAsString());
  };
  if (std::optional<xla::OpSharding> expanded = ToOpSharding(sharding); expanded.has_value()) {
    xla::ifrt::HloShardingProto proto;
    proto.set_xla_op_sharding(op_sharding.empty() ? expanded->SerializeAsString() : op_sharding);
    serialize("xla::ifrt::HloSharding", std::move(proto));
  } else if (const auto* concrete = std::get_if<ifrt::Sharding::Concrete>(&sharding.partitioning())) {
    const std::vector<ifrt::Shape>& shards = concrete->shard_shapes;
    if (std::all_of(shards.begin(), shards.end(), [&](const ifrt::Shape& shard) { return shard == shards[0]; })) {
      xla::ifrt::ConcreteEvenShardingProto proto;
      *proto.mutable_shape() = ToProto(shape);
      *proto.mutable_shard_shape() = ToProto(shards[0]);
      serialize("xla::ifrt::ConcreteEvenSharding", std::move(proto));
    } else {
      xla::ifrt::ConcreteShardingProto proto;
      *proto.mutable_shape() = ToProto(shape);
      for (const ifrt::Shape& shard : shards) *proto.add_shard_shapes() = ToProto(shard);
      serialize("xla::ifrt::ConcreteSharding", std::move(proto));
    }
  } else {
    serialize("xla::ifrt::OpaqueSharding", xla::ifrt::OpaqueShardingProto());
  }
  return result;
}

absl::StatusOr<ifrt::ArraySpec> MakeArraySpec(const DTypeProto& dtype, const xla::ifrt::ShapeProto& shape,
                                              const xla::ifrt::ShardingProto& sharding, const ifrt::DeviceIds& ids) {
  ifrt::ArraySpec spec;
  ASSIGN_OR_RETURN(spec.dtype, FromProto(dtype));
  ASSIGN_OR_RETURN(spec.shape, FromProto(shape));
  ASSIGN_OR_RETURN(spec.sharding, FromProto(sharding, ids));
  if (!std::holds_alternative<ifrt::Sharding::Opaque>(spec.sharding->partitioning())) {
    RETURN_IF_ERROR(spec.sharding->ShardShape(spec.shape, 0).status());
  }
  return spec;
}

absl::StatusOr<ifrt::ArraySpec> FromProto(const xla::ifrt::ArraySpecProto& proto, const ifrt::DeviceIds& ids) {
  ASSIGN_OR_RETURN(ifrt::ArraySpec spec, MakeArraySpec(proto.dtype(), proto.shape(), proto.sharding(), ids));
  if (proto.has_layout()) {
    ASSIGN_OR_RETURN(spec.minor_to_major, LayoutFromText(proto.layout(), spec.shape));
  }
  return spec;
}

absl::StatusOr<ByteStrides> StridesFromProto(const xla::ifrt::proto::ByteStrides* proto, ifrt::DType dtype,
                                             const ifrt::Shape& shape) {
  if (proto == nullptr) return ByteStrides();
  if (proto->strides_size() != static_cast<int>(shape.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", proto->strides_size(), " byte strides for the shape ", ifrt::ToString(shape)));
  }
  const int64_t element = ifrt::HostElementSize(dtype);
  std::vector<int64_t> strides(proto->strides().begin(), proto->strides().end());
  const bool empty = ifrt::NumElements(shape) == 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    // What no element is reached by may have any stride.
    if (empty || shape[i] == 1) continue;
    if (strides[i] <= 0) {
      return absl::UnimplementedError(
          absl::StrCat("Negative or zero byte strides are not supported: [", absl::StrJoin(strides, ","), "]"));
    }
    if (element == 0 || strides[i] % element != 0) {
      return absl::InvalidArgumentError(absl::StrCat("byte strides [", absl::StrJoin(strides, ","),
                                                     "] are no multiples of the element size of ",
                                                     ifrt::ToString(dtype)));
    }
  }
  return ByteStrides(std::move(strides));
}

absl::StatusOr<int64_t> HostBufferSize(ifrt::DType dtype, const ifrt::Shape& shape, const ByteStrides& strides) {
  if (dtype == ifrt::DType::kString) {
    if (strides.has_value() && !strides->empty()) {
      return absl::InvalidArgumentError("arrays of strings have no byte strides");
    }
    return ifrt::HostBuffer::kUnknownSize;
  }
  const int64_t element = ifrt::HostElementSize(dtype);
  const int64_t elements = ifrt::NumElements(shape);
  if (elements == 0) return 0;
  if (!strides.has_value()) return elements * element;  // bounded by ShapeFromDims
  int64_t size = element;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    int64_t extent;
    if (!Multiply(shape[i] - 1, (*strides)[i], &extent) || extent > kMaxSize - size) {
      return absl::InvalidArgumentError(absl::StrCat("the byte strides [", absl::StrJoin(*strides, ","),
                                                     "] of an array of shape ", ifrt::ToString(shape),
                                                     " are too large"));
    }
    size += extent;
  }
  return size;
}

absl::StatusOr<std::vector<int64_t>> FromProto(const xla::ifrt::LayoutProto& proto, const ifrt::Shape& shape) {
  if (!proto.has_serialized_layout()) return std::vector<int64_t>();
  const xla::ifrt::Serialized& serialized = proto.serialized_layout();
  if (serialized.type_name() == "xla::ifrt::CompactLayout") {
    ASSIGN_OR_RETURN(auto layout, Parse<xla::ifrt::CompactLayoutProto>(serialized));
    return CheckedOrder({layout.major_to_minor().rbegin(), layout.major_to_minor().rend()}, shape);
  }
  if (serialized.type_name() == "xla::ifrt::PjRtLayout") {
    ASSIGN_OR_RETURN(auto layout, Parse<xla::ifrt::PjRtLayoutProto>(serialized));
    const xla::LayoutProto& xla_layout = layout.xla_layout();
    if (!xla_layout.tiles().empty()) return absl::UnimplementedError("the devices have no tiled layouts");
    return CheckedOrder({xla_layout.minor_to_major().begin(), xla_layout.minor_to_major().end()}, shape);
  }
  return absl::UnimplementedError(absl::StrCat("layouts of type '", serialized.type_name(), "' are not supported"));
}

absl::StatusOr<std::vector<int64_t>> LayoutFromText(absl::string_view text, const ifrt::Shape& shape) {
  const absl::string_view whole = text;
  auto bad = [&] { return absl::InvalidArgumentError(absl::StrCat("the layout '", whole, "' cannot be read")); };
  if (!absl::ConsumePrefix(&text, "{") || !absl::ConsumeSuffix(&text, "}")) return bad();
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  std::vector<int64_t> order;
  for (absl::string_view number : absl::StrSplit(parts.first, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(number, &order.emplace_back())) return bad();
  }
  // E and S say what the element type and the sharding say, too.
  if (absl::StrContains(parts.second, "T(")) {
    return absl::UnimplementedError(absl::StrCat("the devices have no tiled layouts such as '", whole, "'"));
  }
  return CheckedOrder(std::move(order), shape);
}

std::string LayoutText(const compiler::Layout& layout) {
  std::string text = absl::StrCat("{", absl::StrJoin(layout.minor_to_major(), ","));
  if (layout.element_size_in_bits() != 0) absl::StrAppend(&text, ":E(", layout.element_size_in_bits(), ")");
  return text + "}";
}

xla::LayoutProto ToProto(const compiler::Layout& layout) {
  xla::LayoutProto proto;
  *proto.mutable_minor_to_major() = layout.minor_to_major();
  proto.set_element_size_in_bits(layout.element_size_in_bits());
  return proto;
}

}  // namespace openpathways::proxy
