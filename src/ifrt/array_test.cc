// Arrays: from the host, to the host, rearranged, copied, deleted.
#include <atomic>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ifrt/backend_testing.h"

namespace openpathways::ifrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using worker::Command;

using ArrayTest = BackendTest;

TEST_F(ArrayTest, DevicesFollowTheTopology) {
  ASSERT_EQ(backend_->devices().size(), 16u);
  const Device& device = *backend_->devices()[13];
  EXPECT_EQ(device.slice, 1);
  EXPECT_EQ(device.host, 1);
  EXPECT_EQ(device.ordinal, 1);
  auto ids = backend_->AllocateDeviceIds().Await();
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ((*ids)->id(device), 167);
}

TEST_F(ArrayTest, HostShardsGoOnceToEachWorker) {
  JoinAll();
  ArraySpec spec = Replicated(backend_->devices());
  HostShard shard;
  for (int k = 0; k < 16; ++k) shard.shard_indices.push_back(k);
  shard.shape = {4};
  shard.buffer = std::make_shared<HostBuffer>(16);
  auto array = backend_->MakeArrayFromHostShards(spec, {shard});
  ASSERT_TRUE(array.ok()) << array.status();
  SendZeros(*shard.buffer);
  EXPECT_TRUE((*array)->Ready().Await().ok());
  for (int w = 0; w < 4; ++w) {
    auto begins = worker(w / 2, w % 2).Await(Command::kBeginHostTransfer, 1);
    ASSERT_EQ(begins.size(), 1u);
    const worker::BeginHostTransfer& begin = begins[0].command.begin_host_transfer();
    EXPECT_EQ(begin.targets_size(), 4);
    EXPECT_EQ(begin.targets(3).device(), 3);
    EXPECT_EQ(begin.size(), 16);
    EXPECT_EQ(worker(w / 2, w % 2).Await(Command::kHostTransferData, 1)[0].payload.size(), 16u);
    EXPECT_EQ(worker(w / 2, w % 2).Await(Command::kAwait, 1).size(), 1u);
  }
  array->reset();
  for (int w = 0; w < 4; ++w) worker(w / 2, w % 2).AwaitBuffers(0);
}

TEST_F(ArrayTest, HostShardsAreChecked) {
  ArraySpec spec = Tiled(Devices({0, 1}));
  auto make = [&](std::vector<int64_t> indices, Shape shape, int64_t size,
                  std::optional<std::vector<int64_t>> strides = std::nullopt) {
    HostShard shard{std::move(indices), std::make_shared<HostBuffer>(size), std::move(shape), std::move(strides)};
    return backend_->MakeArrayFromHostShards(spec, {shard}).status();
  };
  EXPECT_THAT(std::string(make({0}, {4}, 16).message()), HasSubstr("shard 1"));
  EXPECT_EQ(make({0, 0}, {4}, 16).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({0, 2}, {4}, 16).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({0, 1}, {5}, 20).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({0, 1}, {4}, 15).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({0, 1}, {4}, 40, {{8}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({0, 1}, {4}, 28, {{-8}}).code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(make({0, 1}, {4}, 28, {{8}}).ok());
  spec.dtype = DType::kToken;
  EXPECT_EQ(make({0, 1}, {4}, 16).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ArrayTest, BrokenHostStreamFailsTheArray) {
  JoinAll();
  HostShard shard{{0}, std::make_shared<HostBuffer>(16), {4}, std::nullopt};
  auto array = backend_->MakeArrayFromHostShards(Replicated(Devices({0})), {shard});
  ASSERT_TRUE(array.ok());
  shard.buffer->Finish(absl::UnknownError("the client went away"));
  auto aborts = worker(0, 0).Await(Command::kAbortHostTransfer, 1);
  EXPECT_EQ(aborts[0].command.abort_host_transfer().status().message(), "the client went away");
}

// Nobody reads: only a bounded part of the data is taken.
TEST_F(ArrayTest, ProducersOfHostDataAreHeldBack) {
  constexpr int64_t kPiece = 1 << 20;
  constexpr int kPieces = 64;
  HostShard shard{{0}, std::make_shared<HostBuffer>(kPieces * kPiece), {kPieces * kPiece / 4}, std::nullopt};
  ArraySpec spec = Replicated(Devices({0}));
  spec.shape = shard.shape;
  auto array = backend_->MakeArrayFromHostShards(spec, {shard});
  ASSERT_TRUE(array.ok()) << array.status();
  auto consumed = std::make_shared<std::atomic<int>>(0);
  auto piece = std::make_shared<std::vector<std::byte>>(kPiece);
  int appended = 0;
  // A producer with one piece in flight at a time.
  while (appended < kPieces && consumed->load() == appended) {
    shard.buffer->Append(transport::Buffer(piece, piece->data(), kPiece), [consumed] { ++*consumed; });
    ++appended;
  }
  EXPECT_LE(appended, 17);
  EXPECT_GE(appended, 2);
  cluster::FakeWorker& late = Join(0, 0);
  late.Await(Command::kHostTransferData, appended);
  for (; appended < kPieces; ++appended) {
    shard.buffer->Append(transport::Buffer(piece, piece->data(), kPiece), [consumed] { ++*consumed; });
  }
  shard.buffer->Finish(absl::OkStatus());
  EXPECT_EQ(late.Await(Command::kHostTransferData, kPieces).size(), static_cast<size_t>(kPieces));
}

TEST_F(ArrayTest, ReadsSmallAndLargeData) {
  JoinAll();
  ArrayRef small = MakeArray(Replicated(Devices({0})));
  ArrayRef large = MakeArray(Replicated(Devices({5})));
  auto buffer_of = [](cluster::FakeWorker& worker) {
    return worker.Await(Command::kBeginHostTransfer, 1)[0].command.begin_host_transfer().targets(0).buffer();
  };
  const std::string big(3 << 20, 'b');
  worker(0, 0).SetBytes(buffer_of(worker(0, 0)), "0123456789abcdef");
  worker(0, 1).SetBytes(buffer_of(worker(0, 1)), big);
  auto read = [](const ArrayRef& array, int64_t step) {
    auto data = array->ReadHost().Await();
    EXPECT_TRUE(data.ok()) << data.status();
    std::string all;
    while (true) {
      auto piece = (*data)->Next(step).Await();
      EXPECT_TRUE(piece.ok()) << piece.status();
      if (piece->empty()) break;
      all.append(reinterpret_cast<const char*>(piece->data()), piece->size());
    }
    EXPECT_EQ(all.size(), static_cast<size_t>((*data)->size()));
    return all;
  };
  EXPECT_EQ(read(small, 7), "0123456789abcdef");
  EXPECT_EQ(read(large, 1 << 20), big);
  // Dropped in the middle: the worker may forget the rest.
  auto data = large->ReadHost().Await();
  ASSERT_TRUE(data.ok());
  EXPECT_EQ((*data)->Next(10).Await()->size(), 10u);
  *data = nullptr;
  worker(0, 1).Await(Command::kReadCancel, 1);
  EXPECT_FALSE(MakeArray(Tiled(Devices({0, 1})))->ReadHost().Await().ok());
}

TEST_F(ArrayTest, DeletedArraysSaySo) {
  JoinAll();
  ArrayRef array = MakeArray(Tiled(SliceDevices(0)));
  array->Delete();
  EXPECT_TRUE(array->IsDeleted());
  for (const absl::Status& status :
       {array->Usable(), array->Ready().Await(), array->ReadHost().Await().status(),
        backend_->DisassembleArray(array, CopySemantics::kReuseInput).status(),
        backend_->CopyArrays({array}, std::nullopt, std::nullopt, CopySemantics::kReuseInput).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("deleted"));
  }
  worker(0, 0).AwaitBuffers(0);
  worker(0, 1).AwaitBuffers(0);
}

TEST_F(ArrayTest, SharedShardsLiveAsLongAsOneArrayHasThem) {
  JoinAll();
  ArrayRef whole = MakeArray(Tiled(SliceDevices(0)));
  auto parts = backend_->DisassembleArray(whole, CopySemantics::kAlwaysCopy);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 8u);
  EXPECT_THAT((*parts)[5]->shape(), ElementsAre(4));
  EXPECT_EQ((*parts)[5]->sharding()->devices(), Devices({5}));
  whole->Delete();
  auto again = backend_->AssembleArray(Tiled(SliceDevices(0)), *parts, CopySemantics::kReuseInput);
  ASSERT_TRUE(again.ok()) << again.status();
  ArrayRef one = (*parts)[5];
  parts->clear();
  EXPECT_TRUE((*again)->Ready().Await().ok());
  again->reset();
  worker(0, 0).AwaitBuffers(0);
  worker(0, 1).AwaitBuffers(1);
  EXPECT_TRUE(one->Ready().Await().ok());
  one.reset();
  worker(0, 1).AwaitBuffers(0);
}

TEST_F(ArrayTest, AssembleIsChecked) {
  JoinAll();
  ArrayRef a = MakeArray(Replicated(Devices({0})));
  ArrayRef b = MakeArray(Replicated(Devices({1})));
  auto code = [&](const std::vector<ArrayRef>& parts, const ArraySpec& spec) {
    return backend_->AssembleArray(spec, parts, CopySemantics::kReuseInput).status().code();
  };
  EXPECT_EQ(code({a, b}, Tiled(Devices({0, 1}))), absl::StatusCode::kOk);
  EXPECT_EQ(code({a}, Tiled(Devices({0, 1}))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({b, a}, Tiled(Devices({0, 1}))), absl::StatusCode::kInvalidArgument);
  ArraySpec wrong = Tiled(Devices({0, 1}));
  wrong.shape = {6};
  EXPECT_EQ(code({a, b}, wrong), absl::StatusCode::kInvalidArgument);
}

TEST_F(ArrayTest, RemapSplitsAndJoins) {
  JoinAll();
  ArrayRef whole = MakeArray(Tiled(SliceDevices(0)));
  std::vector<ArraySpec> specs = {Tiled(Devices({0, 1, 2, 3})), Tiled(Devices({4, 5, 6, 7}))};
  std::vector<ShardMapping> mappings;
  for (int k = 0; k < 8; ++k) mappings.push_back({0, k, k / 4, k % 4});
  auto halves = backend_->RemapArrays({whole}, specs, mappings, CopySemantics::kDonateInput);
  ASSERT_TRUE(halves.ok()) << halves.status();
  EXPECT_TRUE(whole->IsDeleted());
  EXPECT_TRUE((*halves)[1]->Ready().Await().ok());
  (*halves)[0].reset();
  worker(0, 0).AwaitBuffers(0);
  worker(0, 1).AwaitBuffers(4);

  ArrayRef other = MakeArray(Tiled(SliceDevices(0)));
  auto code = [&](std::vector<ShardMapping> changed) {
    return backend_->RemapArrays({other}, specs, changed, CopySemantics::kReuseInput).status().code();
  };
  std::vector<ShardMapping> changed = mappings;
  changed.pop_back();
  EXPECT_EQ(code(changed), absl::StatusCode::kInvalidArgument);
  changed.push_back(mappings[0]);
  EXPECT_EQ(code(changed), absl::StatusCode::kInvalidArgument);
  changed = mappings;
  std::swap(changed[0].out_shard, changed[1].out_shard);
  EXPECT_EQ(code(changed), absl::StatusCode::kInvalidArgument);
  changed[0] = {1, 0, 0, 0};
  EXPECT_EQ(code(changed), absl::StatusCode::kInvalidArgument);
}

TEST_F(ArrayTest, ReplicatedShard) {
  JoinAll();
  ArrayRef replicated = MakeArray(Replicated(SliceDevices(1)));
  auto shard = backend_->FullyReplicatedShard(replicated, CopySemantics::kReuseInput);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ((*shard)->sharding()->devices(), Devices({8}));
  EXPECT_FALSE(backend_->FullyReplicatedShard(MakeArray(Tiled(SliceDevices(1))), CopySemantics::kReuseInput).ok());
}

TEST_F(ArrayTest, CopiesBetweenSlicesGoStraightInOneMessageEach) {
  JoinAll();
  std::vector<ArrayRef> arrays = {MakeArray(Tiled(SliceDevices(0))), MakeArray(Tiled(SliceDevices(0)))};
  auto copies = backend_->CopyArrays(arrays, SliceDevices(1), std::nullopt, CopySemantics::kReuseInput);
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_EQ((*copies)[0]->sharding()->devices(), SliceDevices(1));
  for (const ArrayRef& copy : *copies) EXPECT_TRUE(copy->Ready().Await().ok());
  for (int host = 0; host < 2; ++host) {
    auto sends = worker(0, host).Await(Command::kSendBuffers, 1);
    ASSERT_EQ(sends.size(), 1u);
    const worker::SendBuffers& send = sends[0].command.send_buffers();
    EXPECT_EQ(send.sends_size(), 8);
    EXPECT_EQ(send.destination().worker_id(), worker(1, host).id());
    EXPECT_EQ(send.destination().address(), worker(1, host).address());
    auto receives = worker(1, host).Await(Command::kReceiveBuffers, 1);
    ASSERT_EQ(receives.size(), 1u);
    const worker::ReceiveBuffers& receive = receives[0].command.receive_buffers();
    EXPECT_EQ(receive.source().worker_id(), worker(0, host).id());
    ASSERT_EQ(receive.receives_size(), 8);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(receive.receives(i).transfer(), send.sends(i).transfer());
    EXPECT_EQ(receive.receives(5).target().device(), 1);
    EXPECT_THAT(receive.receives(0).dims(), ElementsAre(4));
  }
  EXPECT_TRUE(arrays[0]->Usable().ok());
}

TEST_F(ArrayTest, CopiesWithinAWorkerAndAliases) {
  JoinAll();
  ArrayRef array = MakeArray(Tiled(Devices({0, 1})));
  auto copy = [&](std::optional<DeviceList> devices, std::optional<std::string> kind, CopySemantics semantics) {
    auto copies = backend_->CopyArrays({array}, std::move(devices), std::move(kind), semantics);
    EXPECT_TRUE(copies.ok()) << copies.status();
    return copies->front();
  };
  ArrayRef alias = copy(std::nullopt, "device", CopySemantics::kReuseInput);
  worker(0, 0).AwaitBuffers(2);
  ArrayRef pinned = copy(std::nullopt, "pinned_host", CopySemantics::kReuseInput);
  EXPECT_EQ(pinned->sharding()->memory_kind(), "pinned_host");
  worker(0, 0).AwaitBuffers(4);
  ArrayRef real_copy = copy(std::nullopt, std::nullopt, CopySemantics::kAlwaysCopy);
  worker(0, 0).AwaitBuffers(6);
  // Shard 0 stays, shard 1 moves.
  ArrayRef partly = copy(Devices({0, 2}), std::nullopt, CopySemantics::kReuseInput);
  worker(0, 0).AwaitBuffers(7);
  auto copies = worker(0, 0).Await(Command::kCopyBuffers, 3);
  EXPECT_EQ(copies[0].command.copy_buffers().copies_size(), 2);
  EXPECT_EQ(copies[0].command.copy_buffers().copies(0).target().memory_kind(), "pinned_host");
  EXPECT_EQ(copies[2].command.copy_buffers().copies_size(), 1);
  ArrayRef donated = copy(Devices({4, 5}), std::nullopt, CopySemantics::kDonateInput);
  EXPECT_TRUE(array->IsDeleted());
  EXPECT_TRUE(donated->Ready().Await().ok());
  EXPECT_EQ(backend_->CopyArrays({alias}, std::nullopt, "hbm", CopySemantics::kReuseInput).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend_->CopyArrays({alias}, Devices({0}), std::nullopt, CopySemantics::kReuseInput).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ArrayTest, ManyArraysAreAwaitedByOneRequestToEachWorker) {
  JoinAll();
  std::vector<ArrayRef> arrays;
  for (int k = 0; k < 5; ++k) arrays.push_back(MakeArray(Tiled(backend_->devices())));
  EXPECT_TRUE(Array::WhenAllReady(arrays).Await().ok());
  EXPECT_EQ(worker(1, 1).Await(Command::kAwait, 1)[0].command.await().buffers_size(), 5 * 4);
  // What was found to be there is not asked for again.
  EXPECT_TRUE(Array::WhenAllReady(arrays).Await().ok());
  EXPECT_TRUE(arrays[3]->Ready().IsReady());
  arrays.push_back(MakeArray(Tiled(SliceDevices(1))));
  EXPECT_TRUE(Array::WhenAllReady(arrays).Await().ok());
  const auto awaits = worker(1, 1).Await(Command::kAwait, 2);
  ASSERT_EQ(awaits.size(), 2);
  EXPECT_EQ(awaits[1].command.await().buffers_size(), 4);
  arrays[0]->Delete();
  EXPECT_EQ(Array::WhenAllReady(arrays).Await().code(), absl::StatusCode::kInvalidArgument);
}

int64_t Count(const google::protobuf::RepeatedField<int64_t>& size) {
  int64_t elements = 1;
  for (int64_t extent : size) elements *= extent;
  return elements;
}

// What all workers were told to do by MoveBoxes commands, in elements.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t local = 0;
  int compositions = 0;
  int targets = 0;

  void Add(const std::vector<cluster::FakeWorker::Received>& commands) {
    for (const auto& received_command : commands) {
      if (!received_command.command.has_move_boxes()) continue;
      const worker::MoveBoxes& boxes = received_command.command.move_boxes();
      for (const auto& send : boxes.sends()) sent += Count(send.size());
      for (const auto& composition : boxes.compositions()) {
        ++compositions;
        targets += composition.targets_size();
        for (const auto& piece : composition.pieces()) {
          (piece.source() != 0 ? local : received) += Count(piece.size());
        }
      }
    }
  }
};

class ReshardTest : public ArrayTest {
 protected:
  ArraySpec Spec(const DeviceList& devices, std::vector<int64_t> tiles, int replicas, const std::string& kind = "") {
    TileAssignment assignment;
    assignment.dims = std::move(tiles);
    assignment.dims.push_back(replicas);
    assignment.subgroup_dims = 1;
    assignment.devices.resize(devices.size());
    std::iota(assignment.devices.begin(), assignment.devices.end(), 0);
    return {DType::kF32, {64, 32}, *Sharding::Create(devices, kind, std::move(assignment))};
  }
  absl::StatusOr<ArrayRef> Reshard(const ArrayRef& array, ArraySpec spec, CopySemantics semantics) {
    std::vector<ArraySpec> specs;
    specs.push_back(std::move(spec));
    auto results = backend_->ReshardArrays({array}, std::move(specs), semantics);
    if (!results.ok()) return results.status();
    EXPECT_TRUE(results->front()->Ready().Await().ok());
    return results->front();
  }
  // All that has come in up to now.
  Traffic All() {
    Traffic traffic;
    for (int w = 0; w < 4; ++w) traffic.Add(worker(w / 2, w % 2).commands());
    return traffic;
  }

  // Of one command to each worker, which is waited for.
  Traffic Expected() {
    Traffic traffic;
    for (int w = 0; w < 4; ++w) traffic.Add(worker(w / 2, w % 2).Await(Command::kMoveBoxes, 1));
    return traffic;
  }
};

TEST_F(ReshardTest, EveryByteGoesOnceToEachWorkerThatNeedsIt) {
  JoinAll();
  // Rows over slice 0; columns over slice 1, twice on each worker.
  ArrayRef rows = MakeArray(Spec(SliceDevices(0), {8, 1}, 1));
  auto columns = Reshard(rows, Spec(SliceDevices(1), {1, 4}, 2), CopySemantics::kAlwaysCopy);
  ASSERT_TRUE(columns.ok()) << columns.status();
  const Traffic traffic = Expected();
  EXPECT_EQ(traffic.sent, 64 * 32);
  EXPECT_EQ(traffic.received, 64 * 32);
  EXPECT_EQ(traffic.local, 0);
  EXPECT_EQ(traffic.compositions, 4);
  EXPECT_EQ(traffic.targets, 8);
  // One command each, and each names the others.
  const worker::MoveBoxes sender = worker(0, 0).Await(Command::kMoveBoxes, 1)[0].command.move_boxes();
  EXPECT_EQ(sender.peers_size(), 2);
  EXPECT_EQ(sender.sends_size(), 4 * 4);
  const worker::MoveBoxes receiver = worker(1, 1).Await(Command::kMoveBoxes, 1)[0].command.move_boxes();
  EXPECT_EQ(receiver.compositions_size(), 2);
  EXPECT_EQ(receiver.compositions(0).pieces_size(), 8);
  EXPECT_THAT(receiver.compositions(0).dims(), ElementsAre(64, 8));
  EXPECT_THAT(receiver.compositions(0).pieces(3).begin(), ElementsAre(24, 0));
  EXPECT_EQ(receiver.peers(receiver.compositions(0).pieces(7).peer()).worker_id(), worker(0, 1).id());
}

TEST_F(ReshardTest, WhatAWorkerHasItTakesFromItself) {
  JoinAll();
  ArrayRef both = MakeArray(Spec(backend_->devices(), {8, 1}, 2));
  auto columns = Reshard(both, Spec(backend_->devices(), {1, 8}, 2), CopySemantics::kReuseInput);
  ASSERT_TRUE(columns.ok()) << columns.status();
  const Traffic traffic = Expected();
  EXPECT_EQ(traffic.sent, traffic.received);
  // Each worker has a quarter of the rows, twice, and needs a quarter of the columns, twice.
  EXPECT_EQ(traffic.local, 4 * 16 * 8);
  EXPECT_EQ(traffic.sent, 4 * 48 * 8);
}

TEST_F(ReshardTest, ReplicatedSourcesShareTheWork) {
  JoinAll();
  // Everything is on both workers of slice 0, and goes to slice 1.
  ArrayRef source = MakeArray(Spec(Devices({0, 4}), {1, 1}, 2));
  auto target = Reshard(source, Spec(SliceDevices(1), {8, 1}, 1), CopySemantics::kAlwaysCopy);
  ASSERT_TRUE(target.ok()) << target.status();
  for (int host = 0; host < 2; ++host) {
    Traffic traffic;
    traffic.Add(worker(0, host).Await(Command::kMoveBoxes, 1));
    EXPECT_EQ(traffic.sent, 64 * 32 / 2) << host;
  }
}

TEST_F(ReshardTest, ShardsThatStayAreShared) {
  JoinAll();
  ArrayRef array = MakeArray(Spec(Devices({0, 1}), {2, 1}, 1));
  auto same = Reshard(array, Spec(Devices({0, 1}), {2, 1}, 1), CopySemantics::kReuseInput);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(All().compositions, 0);
  worker(0, 0).AwaitBuffers(2);
  auto copy = Reshard(array, Spec(Devices({0, 1}), {2, 1}, 1), CopySemantics::kAlwaysCopy);
  worker(0, 0).AwaitBuffers(4);
  auto pinned = Reshard(array, Spec(Devices({0, 1}), {2, 1}, 1, "pinned_host"), CopySemantics::kReuseInput);
  worker(0, 0).AwaitBuffers(6);
  ArraySpec columns = Spec(Devices({0, 1}), {2, 1}, 1);
  columns.minor_to_major = {0, 1};
  auto other_layout = Reshard(array, columns, CopySemantics::kDonateInput);
  ASSERT_TRUE(other_layout.ok()) << other_layout.status();
  EXPECT_TRUE(array->IsDeleted());
  const auto moves = worker(0, 0).Await(Command::kMoveBoxes, 3);
  EXPECT_EQ(moves[1].command.move_boxes().compositions(0).targets(0).memory_kind(), "pinned_host");
  EXPECT_THAT(moves[2].command.move_boxes().compositions(1).targets(0).minor_to_major(), ElementsAre(0, 1));
  EXPECT_EQ(Reshard(array, columns, CopySemantics::kReuseInput).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReshardTest, IsChecked) {
  JoinAll();
  ArrayRef array = MakeArray(Spec(Devices({0, 1}), {2, 1}, 1));
  ArraySpec other_shape = Spec(Devices({0, 1}), {2, 1}, 1);
  other_shape.shape = {32, 64};
  ArraySpec other_type = Spec(Devices({0, 1}), {2, 1}, 1);
  other_type.dtype = DType::kS32;
  ArraySpec unknown = array->spec();
  unknown.sharding = *Sharding::Create(Devices({0, 1}), "", Sharding::Concrete{{{32, 32}, {32, 32}}});
  for (const ArraySpec& spec : {other_shape, other_type, unknown}) {
    EXPECT_EQ(Reshard(array, spec, CopySemantics::kReuseInput).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(backend_->ReshardArrays({array}, {}, CopySemantics::kReuseInput).status().code(),
            absl::StatusCode::kInvalidArgument);
  // What is not known to be where may go to other devices as it is.
  ArrayRef own_values = MakeArray(unknown);
  ArraySpec elsewhere = unknown;
  elsewhere.sharding = *unknown.sharding->WithDevices(Devices({12, 3}), "");
  EXPECT_TRUE(Reshard(own_values, elsewhere, CopySemantics::kReuseInput).ok());
  EXPECT_EQ(Reshard(own_values, array->spec(), CopySemantics::kReuseInput).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ReshardTest, LostWorkersLoseTheResults) {
  JoinAll();
  ArrayRef here = MakeArray(Spec(SliceDevices(0), {8, 1}, 1));
  ArrayRef there = MakeArray(Spec(SliceDevices(1), {8, 1}, 1));
  EXPECT_TRUE(there->Ready().Await().ok());
  worker(1, 0).SetAnswering(false);
  Future<> pending = MakeArray(Spec(SliceDevices(1), {8, 1}, 1))->Ready();
  worker(1, 0).Kill();
  EXPECT_EQ(pending.Await().code(), absl::StatusCode::kDataLoss);
  auto results = backend_->ReshardArrays(
      {here, there, here},
      {Spec(SliceDevices(1), {1, 8}, 1), Spec(SliceDevices(0), {1, 8}, 1), Spec(SliceDevices(0), {1, 8}, 1)},
      CopySemantics::kAlwaysCopy);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*results)[1]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE((*results)[2]->Ready().Await().ok());
}

TEST_F(ArrayTest, BitcastsKeepTheirPlaceAndSize) {
  JoinAll();
  ArrayRef array = MakeArray(Tiled(SliceDevices(0)));
  ArraySpec bits = array->spec();
  bits.dtype = DType::kS32;
  auto results = backend_->BitcastArrays({array}, {bits}, CopySemantics::kReuseInput);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->front()->dtype(), DType::kS32);
  for (int host = 0; host < 2; ++host) {
    const auto commands = worker(0, host).Await(Command::kBitcastBuffers, 1);
    EXPECT_EQ(commands[0].command.bitcast_buffers().bitcasts_size(), 4);
    EXPECT_EQ(commands[0].command.bitcast_buffers().bitcasts(2).element_type(), static_cast<int>(DType::kS32));
  }
  auto fails = [&](ArraySpec spec, CopySemantics semantics = CopySemantics::kReuseInput) {
    return backend_->BitcastArrays({array}, {std::move(spec)}, semantics).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(fails(bits, CopySemantics::kAlwaysCopy));
  bits.dtype = DType::kF16;
  EXPECT_TRUE(fails(bits));
  bits.shape = {64};
  EXPECT_FALSE(fails(bits));
  bits.dtype = DType::kString;
  EXPECT_TRUE(fails(bits));
  bits = array->spec();
  bits.sharding = *bits.sharding->WithDevices(SliceDevices(1), "");
  EXPECT_TRUE(fails(bits));
  bits.sharding = *bits.sharding->WithDevices(SliceDevices(0), "pinned_host");
  EXPECT_TRUE(fails(bits));
  EXPECT_FALSE(fails(array->spec(), CopySemantics::kDonateInput));
  EXPECT_TRUE(array->IsDeleted());
  EXPECT_TRUE(fails(array->spec()));
}

TEST_F(ArrayTest, StringsEndWhenTheClientSaysSo) {
  JoinAll();
  ArraySpec spec = Replicated(Devices({0, 5}));
  spec.dtype = DType::kString;
  HostShard shard{{0, 1}, std::make_shared<HostBuffer>(HostBuffer::kUnknownSize), {4}, std::nullopt};
  auto array = backend_->MakeArrayFromHostShards(spec, {shard});
  ASSERT_TRUE(array.ok()) << array.status();
  auto owner = std::make_shared<std::vector<std::byte>>(8);
  shard.buffer->Append(transport::Buffer(owner, owner->data(), 8), [] {});
  shard.buffer->Finish(absl::OkStatus());
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(worker(0, host).Await(Command::kBeginHostTransfer, 1)[0].command.begin_host_transfer().size(), -1);
    const auto data = worker(0, host).Await(Command::kHostTransferData, 2);
    EXPECT_FALSE(data[0].command.host_transfer_data().last());
    EXPECT_TRUE(data[1].command.host_transfer_data().last());
    EXPECT_EQ(data[1].command.host_transfer_data().offset(), 8);
  }
  // Shards are moved, not cut.
  ArraySpec moved = spec;
  moved.sharding = *Sharding::Create(Devices({9, 4, 1}), "", Sharding::Replicated{});
  auto results = backend_->ReshardArrays({*array}, {moved}, CopySemantics::kReuseInput);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE(results->front()->Ready().Await().ok());
  ArraySpec cut = Tiled(Devices({0, 5}));
  cut.dtype = DType::kString;
  cut.shape = {4};
  EXPECT_EQ(backend_->ReshardArrays({*array}, {cut}, CopySemantics::kReuseInput).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(ArrayTest, LayoutsGoWithTheirArrays) {
  JoinAll();
  ArraySpec spec = Replicated(Devices({0, 1}));
  spec.shape = {2, 3};
  spec.minor_to_major = {0, 1};
  ArrayRef array = MakeArray(spec);
  const auto begins = worker(0, 0).Await(Command::kBeginHostTransfer, 1);
  EXPECT_THAT(begins[0].command.begin_host_transfer().targets(0).minor_to_major(), ElementsAre(0, 1));
  auto parts = backend_->DisassembleArray(array, CopySemantics::kReuseInput);
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT((*parts)[1]->spec().minor_to_major, ElementsAre(0, 1));
  ArraySpec plain = spec;
  plain.minor_to_major.clear();
  auto whole = backend_->AssembleArray(plain, *parts, CopySemantics::kReuseInput);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT((*whole)->spec().minor_to_major, ElementsAre(0, 1));
  auto row_major = backend_->DisassembleArray(MakeArray(plain), CopySemantics::kReuseInput);
  EXPECT_EQ(backend_->AssembleArray(plain, {(*parts)[0], (*row_major)[1]}, CopySemantics::kReuseInput).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto copies = backend_->CopyArrays({array}, Devices({8, 9}), std::nullopt, CopySemantics::kReuseInput);
  ASSERT_TRUE(copies.ok());
  EXPECT_THAT((*copies)[0]->spec().minor_to_major, ElementsAre(0, 1));
  auto unpinned = backend_->CopyArrays({array}, std::nullopt, "unpinned_host", CopySemantics::kReuseInput);
  ASSERT_TRUE(unpinned.ok());
  EXPECT_THAT((*unpinned)[0]->spec().minor_to_major, ElementsAre());
}

TEST_F(ArrayTest, LossOfAWorkerReachesItsArraysOnly) {
  JoinAll();
  ArrayRef lost = MakeArray(Tiled(backend_->devices()));
  ArrayRef other = MakeArray(Tiled(SliceDevices(0)));
  auto part_before = backend_->DisassembleArray(lost, CopySemantics::kReuseInput);
  EXPECT_TRUE(lost->Ready().Await().ok());
  worker(1, 0).SetAnswering(false);
  ArrayRef pending = MakeArray(Tiled(SliceDevices(1)));
  Future<> ready = pending->Ready();
  worker(1, 0).Await(Command::kAwait, 2);
  worker(1, 0).Kill();
  EXPECT_EQ(ready.Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(ready.Await().message()), HasSubstr("slice 1 host 0"));
  // Known to be fine a moment ago.
  EXPECT_EQ(lost->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(lost->Usable().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(other->Ready().Await().ok());
  // Calls on it succeed; their results are lost.
  auto parts = backend_->DisassembleArray(lost, CopySemantics::kReuseInput);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ((*parts)[0]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE((*part_before)[0]->Ready().Await().ok());
  EXPECT_EQ((*part_before)[8]->ReadHost().Await().status().code(), absl::StatusCode::kDataLoss);
  auto copies = backend_->CopyArrays({other, lost->IsDeleted() ? other : (*parts)[0]}, std::nullopt, std::nullopt,
                                     CopySemantics::kReuseInput);
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_TRUE((*copies)[0]->Ready().Await().ok());
  EXPECT_EQ((*copies)[1]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  auto there = backend_->CopyArrays({other}, SliceDevices(1), std::nullopt, CopySemantics::kReuseInput);
  ASSERT_TRUE(there.ok());
  EXPECT_EQ((*there)[0]->Ready().Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(MakeArray(Tiled(SliceDevices(1)))->Ready().Await().code(), absl::StatusCode::kDataLoss);

  // Its place is taken again: new arrays work, old ones stay lost.
  Join(1, 0);
  ArrayRef fresh = MakeArray(Tiled(SliceDevices(1)));
  EXPECT_TRUE(fresh->Ready().Await().ok());
  EXPECT_EQ(lost->Ready().Await().code(), absl::StatusCode::kDataLoss);
  lost->Delete();
  parts->clear();
  fresh.reset();
  worker(1, 0).AwaitBuffers(0);
}

}  // namespace
}  // namespace openpathways::ifrt
