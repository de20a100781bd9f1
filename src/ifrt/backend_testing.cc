#include "ifrt/backend_testing.h"

#include <numeric>
#include <utility>

#include "gmock/gmock.h"
#include "ifrt/cluster_backend.h"
#include "ifrt/fake_compiler.h"
#include "ifrt/op_sharding.pb.h"
#include "pjrt/compile_options.pb.h"

namespace openpathways::ifrt {

void SendZeros(HostBuffer& buffer) {
  auto owner = std::make_shared<std::vector<std::byte>>(buffer.size());
  buffer.Append(transport::Buffer(owner, owner->data(), owner->size()), [] {});
  buffer.Finish(absl::OkStatus());
}

void BackendTest::SetUp() {
  workers_.resize(4);
  auto membership = std::make_unique<cluster::FakeMembership>("tpuv5:2x2x2", 2, 2);
  membership_ = membership.get();
  auto cluster = cluster::Cluster::Create(std::move(membership));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  backend_ = MakeClusterBackend(*std::move(cluster), std::make_unique<FakeCompiler>());
}

void BackendTest::TearDown() {
  for (const auto* workers : {&workers_, &former_workers_}) {
    for (const auto& worker : *workers) {
      if (worker == nullptr) continue;
      EXPECT_THAT(worker->violations(), ::testing::IsEmpty());
    }
  }
  backend_.reset();
}

cluster::FakeWorker& BackendTest::Join(int slice, int host) {
  std::unique_ptr<cluster::FakeWorker>& place = workers_[slice * 2 + host];
  if (place != nullptr) former_workers_.push_back(std::move(place));
  const uint64_t id = next_worker_id_++;
  place = std::make_unique<cluster::FakeWorker>(id, 4);
  membership_->Ready(slice, host, id, place->address());
  return *place;
}

void BackendTest::JoinAll() {
  for (int slice = 0; slice < 2; ++slice) {
    for (int host = 0; host < 2; ++host) Join(slice, host);
  }
}

DeviceList BackendTest::Devices(const std::vector<int>& indices) const {
  DeviceList devices;
  for (int index : indices) devices.push_back(backend_->devices()[index]);
  return devices;
}

DeviceList BackendTest::SliceDevices(int slice) const {
  DeviceList devices;
  for (const Device* device : backend_->devices()) {
    if (device->slice == slice) devices.push_back(device);
  }
  return devices;
}

ArraySpec BackendTest::Tiled(const DeviceList& devices) const {
  TileAssignment tiles;
  tiles.dims = {static_cast<int64_t>(devices.size())};
  tiles.devices.resize(devices.size());
  std::iota(tiles.devices.begin(), tiles.devices.end(), 0);
  return {DType::kF32, {4 * static_cast<int64_t>(devices.size())}, *Sharding::Create(devices, "", std::move(tiles))};
}

ArraySpec BackendTest::Replicated(const DeviceList& devices) const {
  return {DType::kF32, {4}, *Sharding::Create(devices, "", Sharding::Replicated{})};
}

ArrayRef BackendTest::MakeArray(const ArraySpec& spec) {
  std::vector<HostShard> shards;
  for (size_t k = 0; k < spec.sharding->devices().size(); ++k) {
    HostShard shard;
    shard.shard_indices = {static_cast<int64_t>(k)};
    shard.shape = *spec.sharding->ShardShape(spec.shape, static_cast<int>(k));
    shard.buffer = std::make_shared<HostBuffer>(NumElements(shard.shape) * HostElementSize(spec.dtype));
    SendZeros(*shard.buffer);
    shards.push_back(std::move(shard));
  }
  absl::StatusOr<ArrayRef> array = backend_->MakeArrayFromHostShards(spec, std::move(shards));
  EXPECT_TRUE(array.ok()) << array.status();
  return *array;
}

std::string BackendTest::Program(const std::string& name, int devices, int parameters, int results,
                                 const std::vector<int>& donated) const {
  OpShardingProto sharding;
  sharding.set_type(OpShardingProto::OTHER);
  sharding.add_tile_assignment_dimensions(devices);
  sharding.add_iota_reshape_dims(devices);
  compiler::Program program;
  program.set_name(name);
  program.set_num_replicas(1);
  program.set_num_partitions(devices);
  auto fill = [&](compiler::Array* array) {
    array->set_element_type(static_cast<int>(DType::kF32));
    array->add_dims(4);
    array->set_sharding(sharding.SerializeAsString());
  };
  for (int i = 0; i < parameters; ++i) fill(program.add_parameters());
  for (int i = 0; i < results; ++i) fill(program.add_results());
  program.mutable_donated_parameters()->Add(donated.begin(), donated.end());
  return program.SerializeAsString();
}

std::string BackendTest::CompileOptions(int devices) {
  pjrt::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(1);
  options.mutable_executable_build_options()->set_num_partitions(devices);
  return options.SerializeAsString();
}

LoadedExecutableRef BackendTest::Compile(const std::string& program, const DeviceList& devices) {
  absl::StatusOr<LoadedExecutableRef> executable =
      backend_->Compile(program, CompileOptions(static_cast<int>(devices.size())), devices).Await();
  EXPECT_TRUE(executable.ok()) << executable.status();
  return *executable;
}

}  // namespace openpathways::ifrt
