// Translation between the protocol's messages and ifrt's types. Everything that a client sends is checked here: numbers
// that come out of these functions are in range, sizes do not overflow. Errors say what is wrong with which value.
#ifndef OPENPATHWAYS_PROXY_WIRE_TYPES_H_
#define OPENPATHWAYS_PROXY_WIRE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiler.h"
#include "ifrt/backend.h"
#include "ifrt/sharding.h"
#include "proxy/protos/array_semantics.pb.h"
#include "proxy/protos/ifrt_types.pb.h"
#include "proxy/protos/status.pb.h"
#include "proxy/protos/xla_data.pb.h"

namespace openpathways::proxy {

using ByteStrides = std::optional<std::vector<int64_t>>;  // absent: dense row-major

tensorflow::StatusProto ToProto(const absl::Status& status);
absl::Status FromProto(const tensorflow::StatusProto& proto);

absl::StatusOr<ifrt::DType> FromProto(const xla::ifrt::DTypeProto& proto);
xla::ifrt::DTypeProto ToProto(ifrt::DType dtype);

absl::StatusOr<ifrt::Shape> FromProto(const xla::ifrt::ShapeProto& proto);
absl::StatusOr<ifrt::Shape> ShapeFromDims(absl::Span<const int64_t> dims);
xla::ifrt::ShapeProto ToProto(const ifrt::Shape& shape);

absl::StatusOr<ifrt::CopySemantics> FromProto(xla::ifrt::proto::ArrayCopySemantics semantics);

// "" for the default memory, however it was named. INVALID_ARGUMENT for a kind that no device has.
absl::StatusOr<std::string> MemoryKindFromName(const std::string& name);

absl::StatusOr<ifrt::ShardingRef> FromProto(const xla::ifrt::ShardingProto& proto, const ifrt::DeviceIds& ids);
// The sharding of an array of `shape`. `op_sharding`: serialized xla.OpSharding that describes the same partitioning in
// the compiler's own words, or empty.
xla::ifrt::ShardingProto ToProto(const ifrt::Sharding& sharding, const ifrt::Shape& shape,
                                 const std::string& op_sharding, const ifrt::DeviceIds& ids);
// The sharding as an xla.OpSharding; nullopt if that cannot express it.
std::optional<xla::OpSharding> ToOpSharding(const ifrt::Sharding& sharding);

// Checks that dtype, shape and sharding go together, too.
absl::StatusOr<ifrt::ArraySpec> MakeArraySpec(const xla::ifrt::DTypeProto& dtype, const xla::ifrt::ShapeProto& shape,
                                              const xla::ifrt::ShardingProto& sharding, const ifrt::DeviceIds& ids);
absl::StatusOr<ifrt::ArraySpec> FromProto(const xla::ifrt::ArraySpecProto& proto, const ifrt::DeviceIds& ids);

// `proto` null: absent.
absl::StatusOr<ByteStrides> StridesFromProto(const xla::ifrt::proto::ByteStrides* proto, ifrt::DType dtype,
                                             const ifrt::Shape& shape);
// Bytes of a host buffer: from the first byte of the first element to the last byte of the last one; kUnknownSize for
// strings, which take no strides. INVALID_ARGUMENT if it does not fit 62 bits.
absl::StatusOr<int64_t> HostBufferSize(ifrt::DType dtype, const ifrt::Shape& shape, const ByteStrides& strides);

// A layout as ArraySpec::minor_to_major. UNIMPLEMENTED for one that is more than an order of dimensions: no device here
// has tiles and the like.
absl::StatusOr<std::vector<int64_t>> FromProto(const xla::ifrt::LayoutProto& proto, const ifrt::Shape& shape);
absl::StatusOr<std::vector<int64_t>> LayoutFromText(absl::string_view text, const ifrt::Shape& shape);
// XLA's text form: "{1,0}", "{1,0:E(4)}".
std::string LayoutText(const compiler::Layout& layout);
xla::LayoutProto ToProto(const compiler::Layout& layout);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_WIRE_TYPES_H_
