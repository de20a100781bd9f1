#include "proxy/wire_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/fake_backend.h"
#include "proxy/test_client.h"

namespace openpathways::proxy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WireTypesTest : public ::testing::Test {
 protected:
  absl::StatusOr<ifrt::ShardingRef> Parse(const std::string& type, const google::protobuf::Message& sharding) {
    xla::ifrt::ShardingProto proto;
    proto.mutable_serialized_sharding()->set_type_name(type);
    proto.mutable_serialized_sharding()->set_data(sharding.SerializeAsString());
    return FromProto(proto, *ids_);
  }
  FakeBackend backend_;
  std::shared_ptr<const ifrt::DeviceIds> ids_ = *backend_.AllocateDeviceIds().Await();
};

TEST_F(WireTypesTest, EveryDTypeKeepsItsMeaning) {
  const auto* kinds = xla::ifrt::DTypeProto::Kind_descriptor();
  for (int i = 0; i < kinds->value_count(); ++i) {
    xla::ifrt::DTypeProto proto;
    proto.set_kind(static_cast<xla::ifrt::DTypeProto::Kind>(kinds->value(i)->number()));
    absl::StatusOr<ifrt::DType> dtype = FromProto(proto);
    const std::string name = kinds->value(i)->name().substr(strlen("KIND_"));
    if (name == "UNSPECIFIED" || name == "OPAQUE") {
      EXPECT_EQ(dtype.status().code(), absl::StatusCode::kInvalidArgument) << name;
      continue;
    }
    ASSERT_TRUE(dtype.ok()) << dtype.status();
    EXPECT_EQ(ToProto(*dtype).kind(), proto.kind());
    // ifrt has XLA's numbers.
    if (name != "STRING") {
      EXPECT_EQ(xla::PrimitiveType_Name(static_cast<int>(*dtype)), name);
    }
  }
  xla::ifrt::DTypeProto unknown;
  unknown.set_kind(static_cast<xla::ifrt::DTypeProto::Kind>(77));
  EXPECT_FALSE(FromProto(unknown).ok());
}

TEST_F(WireTypesTest, ShapesAreBounded) {
  EXPECT_TRUE(FromProto(Dims({})).ok());
  EXPECT_TRUE(FromProto(Dims({0, 5})).ok());
  EXPECT_FALSE(FromProto(Dims({2, -1})).ok());
  EXPECT_FALSE(FromProto(Dims({int64_t{1} << 40, int64_t{1} << 40})).ok());
  EXPECT_FALSE(FromProto(Dims({int64_t{1} << 40, 0, int64_t{1} << 40})).ok());
  EXPECT_FALSE(FromProto(Dims({INT64_MAX})).ok());
  EXPECT_FALSE(FromProto(Dims(std::vector<int64_t>(1000, 1))).ok());
}

TEST_F(WireTypesTest, HostBufferSizes) {
  const auto strided = [](std::vector<int64_t> dims, std::vector<int64_t> strides) {
    xla::ifrt::proto::ByteStrides proto;
    proto.mutable_strides()->Add(strides.begin(), strides.end());
    absl::StatusOr<ByteStrides> parsed = StridesFromProto(&proto, ifrt::DType::kF32, dims);
    return parsed.ok() ? HostBufferSize(ifrt::DType::kF32, dims, *parsed) : parsed.status();
  };
  EXPECT_EQ(*HostBufferSize(ifrt::DType::kF32, {2, 3}, std::nullopt), 24);
  EXPECT_EQ(*HostBufferSize(ifrt::DType::kS4, {4}, std::nullopt), 4);
  EXPECT_EQ(*HostBufferSize(ifrt::DType::kC128, {}, std::nullopt), 16);
  EXPECT_EQ(*strided({3, 2}, {16, 8}), 44);
  EXPECT_EQ(*strided({8, 1}, {32, 4}), 228);
  EXPECT_EQ(*strided({}, {}), 4);
  EXPECT_EQ(*strided({0, 5}, {0, 0}), 0);
  EXPECT_EQ(*strided({1, 5}, {-7, 4}), 20);
  EXPECT_EQ(strided({2, 5}, {-20, 4}).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(strided({2, 5}, {21, 4}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(strided({2, 5}, {4}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(strided({2, 5}, {int64_t{1} << 61, int64_t{1} << 61}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*HostBufferSize(ifrt::DType::kString, {2}, std::nullopt), ifrt::HostBuffer::kUnknownSize);
  EXPECT_EQ(HostBufferSize(ifrt::DType::kString, {2}, {{8}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WireTypesTest, HloShardingNamesPositionsInItsDeviceList) {
  absl::StatusOr<ifrt::ShardingRef> sharding = FromProto(HloSharding({145, 144, 162, 163}, Tiled({2, 2})), *ids_);
  ASSERT_TRUE(sharding.ok()) << sharding.status();
  EXPECT_EQ((*sharding)->devices()[0]->index, 1);
  EXPECT_EQ((*sharding)->devices()[2]->slice, 1);
  EXPECT_THAT(*(*sharding)->ShardShape({4, 6}, 0), ElementsAre(2, 3));
}

TEST_F(WireTypesTest, BadShardingsAreErrors) {
  EXPECT_EQ(FromProto(HloSharding({7}), *ids_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(FromProto(HloSharding({}), *ids_).ok());
  EXPECT_FALSE(FromProto(HloSharding({144, 144}), *ids_).ok());
  EXPECT_FALSE(FromProto(HloSharding({144}, Tiled({2})), *ids_).ok());
  EXPECT_FALSE(FromProto(HloSharding({144, 145}, Tiled({int64_t{1} << 62, 8})), *ids_).ok());
  EXPECT_FALSE(FromProto(xla::ifrt::ShardingProto(), *ids_).ok());
  EXPECT_EQ(Parse("xla::ifrt::Unheard", xla::ifrt::OpaqueShardingProto()).status().code(),
            absl::StatusCode::kUnimplemented);
  xla::ifrt::SingleDeviceShardingProto single;
  single.set_device_id(144);
  single.set_memory_kind("attic");
  EXPECT_THAT(std::string(Parse("xla::ifrt::SingleDeviceSharding", single).status().message()), HasSubstr("attic"));
}

TEST_F(WireTypesTest, ShardingsComeBackAsTheyWent) {
  xla::ifrt::ConcreteEvenShardingProto even;
  even.mutable_devices()->add_device_ids(144);
  even.mutable_devices()->add_device_ids(150);
  *even.mutable_shape() = Dims({4});
  *even.mutable_shard_shape() = Dims({2});
  even.set_memory_kind("pinned_host");
  absl::StatusOr<ifrt::ShardingRef> sharding = Parse("xla::ifrt::ConcreteEvenSharding", even);
  ASSERT_TRUE(sharding.ok()) << sharding.status();
  const xla::ifrt::ShardingProto back = ToProto(**sharding, {4}, "", *ids_);
  EXPECT_EQ(back.serialized_sharding().type_name(), "xla::ifrt::ConcreteEvenSharding");
  EXPECT_EQ(back.serialized_sharding().data(), even.SerializeAsString());

  const xla::ifrt::ShardingProto tiled = HloSharding({144, 145}, Tiled({2}));
  sharding = FromProto(tiled, *ids_);
  ASSERT_TRUE(sharding.ok()) << sharding.status();
  EXPECT_EQ(ToProto(**sharding, {4}, Tiled({2}).SerializeAsString(), *ids_).SerializeAsString(),
            tiled.SerializeAsString());
  EXPECT_EQ(ToOpSharding(**sharding)->tile_assignment_devices_size(), 2);
}

TEST_F(WireTypesTest, MemoryKinds) {
  EXPECT_EQ(*MemoryKindFromName("device"), "");
  EXPECT_EQ(*MemoryKindFromName(""), "");
  EXPECT_EQ(*MemoryKindFromName("pinned_host"), "pinned_host");
  EXPECT_FALSE(MemoryKindFromName("attic").ok());
}

TEST_F(WireTypesTest, LayoutsAreOrdersOfDimensions) {
  xla::ifrt::LayoutProto layout;
  EXPECT_THAT(*FromProto(layout, {2, 3}), ElementsAre());
  xla::ifrt::CompactLayoutProto compact;
  auto read = [&](std::vector<int32_t> major_to_minor, const ifrt::Shape& shape) {
    compact.mutable_major_to_minor()->Assign(major_to_minor.begin(), major_to_minor.end());
    layout.mutable_serialized_layout()->set_type_name("xla::ifrt::CompactLayout");
    layout.mutable_serialized_layout()->set_data(compact.SerializeAsString());
    return FromProto(layout, shape);
  };
  EXPECT_THAT(*read({0, 1}, {2, 3}), ElementsAre());
  EXPECT_THAT(*read({1, 0}, {2, 3}), ElementsAre(0, 1));
  EXPECT_THAT(*read({1, 0}, {2, 1}), ElementsAre());  // the same order
  EXPECT_THAT(*read({1, 0, 2}, {2, 1, 3}), ElementsAre());
  EXPECT_THAT(*read({2, 0, 1}, {2, 1, 3}), ElementsAre(1, 0, 2));
  EXPECT_EQ(read({0, 1}, {2}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(read({0, 0}, {2, 3}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(read({0, 2}, {2, 3}).status().code(), absl::StatusCode::kInvalidArgument);
  xla::ifrt::PjRtLayoutProto pjrt;
  pjrt.mutable_xla_layout()->add_minor_to_major(0);
  pjrt.mutable_xla_layout()->add_minor_to_major(1);
  layout.mutable_serialized_layout()->set_type_name("xla::ifrt::PjRtLayout");
  layout.mutable_serialized_layout()->set_data(pjrt.SerializeAsString());
  EXPECT_THAT(*FromProto(layout, {2, 3}), ElementsAre(0, 1));
  pjrt.mutable_xla_layout()->add_tiles()->add_dimensions(8);
  layout.mutable_serialized_layout()->set_data(pjrt.SerializeAsString());
  EXPECT_EQ(FromProto(layout, {2, 3}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(WireTypesTest, LayoutsAsText) {
  EXPECT_THAT(*LayoutFromText("{}", {}), ElementsAre());
  EXPECT_THAT(*LayoutFromText("{1,0}", {2, 3}), ElementsAre());
  EXPECT_THAT(*LayoutFromText("{0,1:E(4)S(5)}", {2, 3}), ElementsAre(0, 1));
  EXPECT_EQ(LayoutFromText("{1,0:T(8,128)}", {2, 3}).status().code(), absl::StatusCode::kUnimplemented);
  for (const char* bad : {"", "{", "1,0", "{1,0", "{1,x}", "{1}", "{1,1}", "{2,0}"}) {
    EXPECT_EQ(LayoutFromText(bad, {2, 3}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(WireTypesTest, LayoutText) {
  compiler::Layout layout;
  EXPECT_EQ(LayoutText(layout), "{}");
  layout.add_minor_to_major(1);
  layout.add_minor_to_major(0);
  EXPECT_EQ(LayoutText(layout), "{1,0}");
  layout.set_element_size_in_bits(4);
  EXPECT_EQ(LayoutText(layout), "{1,0:E(4)}");
}

TEST_F(WireTypesTest, StatusKeepsPayloadAndUnknownCodesBecomeUnknown) {
  absl::Status status = absl::DataLossError("gone");
  status.SetPayload("key", absl::Cord("value"));
  EXPECT_EQ(FromProto(ToProto(status)), status);
  tensorflow::StatusProto odd;
  odd.set_code(static_cast<tensorflow::error::Code>(1234));
  EXPECT_EQ(FromProto(odd).code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace openpathways::proxy
