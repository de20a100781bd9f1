// Host buffers in both directions: before and after their requests, slow and many, and what becomes of them at the end.
#include <fstream>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "proxy/host_buffer_table.h"
#include "proxy/server_test_fixture.h"

namespace openpathways::proxy {
namespace {

using ::testing::HasSubstr;
namespace error = tensorflow::error;

std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

class HostBufferTest : public ServerTest {};

TEST_F(HostBufferTest, StoreBeforeAndAfterTheRequest) {
  auto client = NewClient();
  const std::string bytes = Pattern(4'000'000);
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(1, 144, {1'000'000}))), error::OK);
  EXPECT_TRUE(client->Store(1, bytes).ok());
  EXPECT_TRUE(client->Store(2, bytes).ok());
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(2, 144, {1'000'000}))), error::OK);
  for (int i = 0; i < 2; ++i) {
    auto received = backend_.WaitReceived(i);
    EXPECT_TRUE(received->WaitFinished().ok());
    EXPECT_EQ(received->Bytes(), bytes);
  }
  EXPECT_EQ((*server_->sessions().FindHostBuffers(client->session_id()))->size(), 0u);
}

TEST_F(HostBufferTest, EmptyBuffers) {
  auto client = NewClient();
  EXPECT_TRUE(client->Store(1, "").ok());
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(1, 144, {0, 3}))), error::OK);
  EXPECT_TRUE(backend_.WaitReceived(0)->WaitFinished().ok());
}

TEST_F(HostBufferTest, ShardsOfOneRequest) {
  auto client = NewClient();
  wire::IfrtRequest request;
  auto& make = *request.mutable_make_arrays_from_host_buffer_shards_request();
  auto& spec = *make.add_specs();
  *spec.mutable_array_spec()->mutable_dtype() = F32();
  *spec.mutable_array_spec()->mutable_shape() = Dims({4, 2});
  *spec.mutable_array_spec()->mutable_sharding() = HloSharding({144, 145}, Tiled({2, 1}));
  for (int shard = 0; shard < 2; ++shard) {
    spec.add_addressable_shard_indices()->add_indices(shard);
    auto& buffer = *spec.add_host_buffers();
    *buffer.mutable_dtype() = F32();
    *buffer.mutable_shape() = Dims({2, 2});
    buffer.set_host_buffer_handle(1 + shard);
  }
  make.add_array_handles(1);
  EXPECT_EQ(Code(client->Call(request)), error::OK);
  EXPECT_TRUE(client->Store(1, Pattern(16)).ok());
  EXPECT_TRUE(client->Store(2, Pattern(16)).ok());

  // A shard too few, a shard twice, a wrong shape: errors, whose buffers are dropped when they come.
  for (int kind = 0; kind < 3; ++kind) {
    wire::IfrtRequest bad = request;
    auto& body = *bad.mutable_make_arrays_from_host_buffer_shards_request();
    auto& bad_spec = *body.mutable_specs(0);
    body.set_array_handles(0, 10 + kind);
    bad_spec.mutable_host_buffers(0)->set_host_buffer_handle(20 + 2 * kind);
    bad_spec.mutable_host_buffers(1)->set_host_buffer_handle(21 + 2 * kind);
    if (kind == 0) bad_spec.mutable_addressable_shard_indices(1)->clear_indices();
    if (kind == 1) bad_spec.mutable_addressable_shard_indices(1)->set_indices(0, 0);
    if (kind == 2) *bad_spec.mutable_host_buffers(0)->mutable_shape() = Dims({1, 2});
    EXPECT_EQ(Code(client->Call(bad)), error::INVALID_ARGUMENT) << kind;
    EXPECT_EQ(Code(client->Call(ReadyRequest({10u + kind}))), error::INVALID_ARGUMENT);
    EXPECT_TRUE(client->Store(20 + 2 * kind, Pattern(64 << 20)).ok());
    EXPECT_TRUE(client->Store(21 + 2 * kind, Pattern(16)).ok());
  }
  EXPECT_EQ((*server_->sessions().FindHostBuffers(client->session_id()))->size(), 0u);
}

TEST_F(HostBufferTest, AWrongSizeIsTheArraysErrorAndNotTheSessions) {
  auto client = NewClient();
  EXPECT_TRUE(client->Store(1, Pattern(12)).ok());
  EXPECT_THAT(Message(client->Call(MakeArrayRequest(1, 144, {4}))), HasSubstr("12 bytes"));
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(2, 144, {4}))), error::OK);
  EXPECT_TRUE(client->Store(2, Pattern(12)).ok());
  EXPECT_EQ(backend_.WaitReceived(0)->WaitFinished().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HostBufferTest, BytesForAnArrayThatIsGone) {
  auto client = NewClient();
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(1, 144, {1'000'000}))), error::OK);
  EXPECT_EQ(Code(client->Call(DestructRequest({1}))), error::OK);
  EXPECT_TRUE(client->Store(1, Pattern(4'000'000)).ok()) << "a failed store would end the client's session";
  EXPECT_EQ((*server_->sessions().FindHostBuffers(client->session_id()))->size(), 0u);
}

// How many bytes an array of strings has shows only when they come.
TEST_F(HostBufferTest, StringsBeforeAndAfterTheirRequest) {
  auto client = NewClient();
  auto make = [](uint64_t handle) {
    wire::IfrtRequest request = MakeArrayRequest(handle, 144, {2});
    request.mutable_make_array_from_host_buffer_request()->mutable_dtype()->set_kind(
        xla::ifrt::DTypeProto::KIND_STRING);
    return request;
  };
  EXPECT_EQ(Code(client->Call(make(1))), error::OK);
  EXPECT_TRUE(client->Store(1, Pattern(3'000'001)).ok());
  EXPECT_TRUE(client->Store(2, Pattern(17)).ok());
  EXPECT_EQ(Code(client->Call(make(2))), error::OK);
  for (int i = 0; i < 2; ++i) {
    auto received = backend_.WaitReceived(i);
    EXPECT_TRUE(received->WaitFinished().ok());
    EXPECT_EQ(received->Bytes(), Pattern(i == 0 ? 3'000'001 : 17));
  }
  // A stream that breaks is the array's error.
  EXPECT_EQ(Code(client->Call(make(3))), error::OK);
  {
    grpc::ClientContext context;
    client->AddStoreMetadata(context, 3, 10);
    wire::GrpcHostBufferStoreResponse response;
    auto writer = client->stub().HostBufferStore(&context, &response);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  }
  EXPECT_FALSE(backend_.WaitReceived(2)->WaitFinished().ok());
}

TEST_F(HostBufferTest, StoresThatMustFail) {
  auto client = NewClient();
  EXPECT_TRUE(client->Store(1, "four").ok());
  EXPECT_EQ(client->Store(1, "four").error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_TRUE(client->DeleteBuffer(1).ok());
  EXPECT_EQ(client->DeleteBuffer(1).error_code(), grpc::StatusCode::NOT_FOUND);

  wire::GrpcHostBufferStoreResponse response;
  wire::GrpcHostBufferStoreRequest piece;
  piece.set_data("four");
  grpc::ClientContext bare;
  EXPECT_FALSE(client->stub().HostBufferStore(&bare, &response)->Finish().ok());
  grpc::ClientContext garbled;
  garbled.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin", "\xff\xff\xff");
  EXPECT_EQ(client->stub().HostBufferStore(&garbled, &response)->Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  for (int64_t size : {3, 5}) {
    grpc::ClientContext context;
    client->AddStoreMetadata(context, 10 + size, size);
    auto writer = client->stub().HostBufferStore(&context, &response);
    writer->Write(piece);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DATA_LOSS) << size;
  }
}

TEST_F(HostBufferTest, ASlowDeviceSlowsItsClientAndNobodyElse) {
  auto client = NewClient();
  backend_.hold_pieces = true;
  client->Call(MakeArrayRequest(1, 144, {32 << 20}));
  const std::string large = Pattern(size_t{128} << 20);
  std::thread slow([&] { EXPECT_TRUE(client->Store(1, large).ok()); });
  auto received = backend_.WaitReceived(0);
  received->WaitHeld(8);
  backend_.hold_pieces = false;
  EXPECT_EQ(Code(client->Call(MakeArrayRequest(2, 144, {1 << 20}))), error::OK);
  EXPECT_TRUE(client->Store(2, Pattern(4 << 20)).ok());
  EXPECT_TRUE(backend_.WaitReceived(1)->WaitFinished().ok());
  EXPECT_LT(received->Bytes().size(), size_t{12} << 20) << "no more is taken than may wait";
  received->ReleaseHeld();
  slow.join();
  EXPECT_TRUE(received->WaitFinished().ok());
  EXPECT_EQ(received->Bytes(), large);
}

TEST_F(HostBufferTest, ThousandsOfStoresAtOnce) {
  constexpr int kStores = 4000;
  auto client = NewClient();
  struct Store : grpc::ClientWriteReactor<wire::GrpcHostBufferStoreRequest> {
    void OnWriteDone(bool ok) override { StartWritesDone(); }
    void OnDone(const grpc::Status& status) override {
      if (!status.ok()) failures->fetch_add(1);
      if (running->fetch_sub(1) == 1) done->Notify();
    }
    grpc::ClientContext context;
    wire::GrpcHostBufferStoreRequest request;
    wire::GrpcHostBufferStoreResponse response;
    std::atomic<int>* failures;
    std::atomic<int>* running;
    absl::Notification* done;
  };
  std::atomic<int> failures = 0, running = kStores;
  absl::Notification done;
  std::vector<std::unique_ptr<Store>> stores;
  for (int i = 0; i < kStores; ++i) {
    Store& store = *stores.emplace_back(std::make_unique<Store>());
    store.failures = &failures;
    store.running = &running;
    store.done = &done;
    store.request.set_data("sixteen bytes xx");
    client->AddStoreMetadata(store.context, 1 + i, 16);
    client->stub().async()->HostBufferStore(&store.context, &store.response, &store);
    store.StartCall();  // all streams are open before anything is written
  }
  for (auto& store : stores) store->StartWrite(&store->request);
  done.WaitForNotification();
  EXPECT_EQ(failures, 0);
  for (int i = 0; i < kStores; ++i) client->Send(MakeArrayRequest(1 + i, 144, {4}));
  EXPECT_EQ(Code(client->Call(ReadyRequest({kStores}))), error::OK);
  EXPECT_EQ((*server_->sessions().FindHostBuffers(client->session_id()))->size(), 0u);
}

// Bytes for a lookup, some of them still to come.
class TestHostData : public ifrt::HostData {
 public:
  explicit TestHostData(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  Future<transport::Buffer> Next(int64_t max_size) override {
    ++*asked;
    const size_t size = std::min<size_t>(max_size, bytes_.size() - offset_);
    auto piece = std::make_shared<std::string>(bytes_.substr(offset_, size));
    offset_ += size;
    if (hold) {
      Promise<transport::Buffer> promise;
      Future<transport::Buffer> future = promise.future();
      held.push_back(std::move(promise));
      return future;
    }
    std::byte* data = reinterpret_cast<std::byte*>(piece->data());
    return Future<transport::Buffer>(transport::Buffer(piece, data, size));
  }
  const std::shared_ptr<std::atomic<int>> asked = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> hold = false;
  std::vector<Promise<transport::Buffer>> held;

 private:
  const std::string bytes_;
  size_t offset_ = 0;
};

TEST_F(HostBufferTest, Lookup) {
  auto client = NewClient();
  auto table = *server_->sessions().FindHostBuffers(client->session_id());
  const std::string bytes = Pattern(9'000'001);
  ASSERT_TRUE(table->Publish(5, std::make_shared<TestHostData>(bytes)).ok());
  std::string back;
  EXPECT_TRUE(client->Lookup(5, &back).ok());
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(client->Lookup(5, &back).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(client->DeleteBuffer(5).ok());
  EXPECT_EQ(client->Lookup(5, &back).error_code(), grpc::StatusCode::NOT_FOUND);

  ASSERT_TRUE(table->Publish(6, std::make_shared<TestHostData>("")).ok());
  int messages = 0;
  EXPECT_TRUE(client->Lookup(6, &back, &messages).ok());
  EXPECT_EQ(messages, 1) << "an empty buffer is one empty message";
}

TEST_F(HostBufferTest, LookupAsksForNoMoreThanTheClientTakes) {
  auto client = NewClient();
  auto table = *server_->sessions().FindHostBuffers(client->session_id());
  auto data = std::make_shared<TestHostData>(Pattern(size_t{128} << 20));
  ASSERT_TRUE(table->Publish(5, data).ok());
  grpc::ClientContext context;
  wire::GrpcHostBufferLookupRequest request;
  request.set_session_id(client->session_id());
  request.set_handle(5);
  auto reader = client->stub().HostBufferLookup(&context, request);
  wire::GrpcHostBufferLookupResponse piece;
  ASSERT_TRUE(reader->Read(&piece));
  // Pieces are 1 MiB; gRPC's windows hold some of the 128.
  EXPECT_LT(*data->asked, 80);
  while (reader->Read(&piece)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(HostBufferTest, SessionsTakeTheirHostBuffersWithThem) {
  auto client = NewClient();
  auto table = *server_->sessions().FindHostBuffers(client->session_id());
  auto data = std::make_shared<TestHostData>("x");
  data->hold = true;
  std::shared_ptr<std::atomic<int>> asked = data->asked;
  ASSERT_TRUE(table->Publish(5, std::move(data)).ok());
  client->Call(MakeArrayRequest(1, 144, {4}));
  client->Call(MakeArrayRequest(2, 144, {4}));

  // A lookup whose data do not come, and a store whose client has gone quiet, on another connection.
  std::string bytes;
  std::thread lookup([&] { EXPECT_EQ(client->Lookup(5, &bytes).error_code(), grpc::StatusCode::NOT_FOUND); });
  auto other = wire::GrpcIfrtService::NewStub(TestClient::Connect(server_->port()));
  grpc::ClientContext context;
  client->AddStoreMetadata(context, 1, 16);
  wire::GrpcHostBufferStoreResponse response;
  auto writer = other->HostBufferStore(&context, &response);
  while (*asked == 0) std::this_thread::yield();

  client->Cancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  lookup.join();
  EXPECT_EQ(backend_.WaitReceived(0)->WaitFinished().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(backend_.WaitReceived(1)->WaitFinished().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(backend_.WaitClients(0), 0);
  EXPECT_EQ(client->Store(9, "late").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(client->Lookup(5, &bytes).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HostBufferTest, LargeTransfersThroughADirectory) {
  const std::string directory = ::testing::TempDir() + "/proxy_lt_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  Restart(directory);
  auto client = NewClient();
  auto read = [&](uint64_t handle, int64_t size) {
    wire::GrpcHostBufferReadFromDiskRequest request;
    request.mutable_metadata()->set_session_id(client->session_id());
    request.mutable_metadata()->set_handle(handle);
    request.mutable_metadata()->set_buffer_size(size);
    wire::GrpcHostBufferReadFromDiskResponse response;
    grpc::ClientContext context;
    return client->stub().HostBufferReadFromDisk(&context, request, &response);
  };
  const std::string bytes = Pattern(40'000'000);
  std::ofstream(directory + "/lt_1") << bytes;
  EXPECT_TRUE(read(1, bytes.size()).ok());
  client->Call(MakeArrayRequest(1, 144, {10'000'000}));
  auto received = backend_.WaitReceived(0);
  EXPECT_TRUE(received->WaitFinished().ok());
  EXPECT_EQ(received->Bytes(), bytes);
  EXPECT_FALSE(std::ifstream(directory + "/lt_1").good()) << "the file is gone";

  std::ofstream(directory + "/lt_2") << "four";
  EXPECT_EQ(read(2, 5).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(read(3, 5).error_code(), grpc::StatusCode::NOT_FOUND);
  unlink((directory + "/lt_2").c_str());
  rmdir(directory.c_str());
}

TEST(HostBufferTableTest, ClosingFailsWhatWaits) {
  HostBufferTable table;
  ifrt::HostBufferRef claimed = *table.Claim(1, 4);
  absl::Status seen;
  ifrt::HostBuffer::Consumer consumer;
  consumer.piece = [](int64_t, transport::Buffer, absl::AnyInvocable<void()> consumed) { consumed(); };
  consumer.finished = [&](const absl::Status& status) { seen = status; };
  claimed->Attach(std::move(consumer));
  EXPECT_EQ(table.Claim(1, 4).status().code(), absl::StatusCode::kInvalidArgument) << "used twice";
  absl::Status told;
  table.AddCloseCallback([&](const absl::Status& status) { told = status; });
  table.Close(absl::NotFoundError("over"));
  EXPECT_EQ(seen, absl::NotFoundError("over"));
  EXPECT_EQ(told, absl::NotFoundError("over"));
  EXPECT_EQ(table.BeginStore(2, 4).status(), absl::NotFoundError("over"));
  EXPECT_EQ(table.Claim(2, 4).status(), absl::NotFoundError("over"));
}

}  // namespace
}  // namespace openpathways::proxy
