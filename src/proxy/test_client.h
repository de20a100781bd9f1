// For tests: a client of the protocol that does what it is told, including what no real client would do.
#ifndef OPENPATHWAYS_PROXY_TEST_CLIENT_H_
#define OPENPATHWAYS_PROXY_TEST_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proxy/protos/grpc_ifrt_service.grpc.pb.h"
#include "proxy/protos/ifrt_session.pb.h"

namespace openpathways::proxy {

namespace wire = ::xla::ifrt::proxy;

// One session, opened by the constructor. Init is sent only by the test.
class TestClient {
 public:
  explicit TestClient(int port, int protocol_version = 25);
  ~TestClient();  // cancels the session, like a client that exits

  // Sends without waiting; fills in op_id (ascending from 1) unless there is one. Returns it.
  uint64_t Send(wire::IfrtRequest request);
  // Waits for the response to `op_id`, or for the end of the session (then: no response_metadata).
  wire::IfrtResponse Receive(uint64_t op_id);
  wire::IfrtResponse Call(wire::IfrtRequest request) { return Receive(Send(std::move(request))); }
  // Responses that nobody has asked for yet.
  size_t num_unclaimed();

  // Init; remembers the session id. Device ids are 144... in a new FakeBackend.
  wire::InitResponse Init();
  uint64_t session_id() const { return session_id_; }

  grpc::Status Store(uint64_t handle, const std::string& bytes, size_t chunk = 1 << 20);
  grpc::Status Lookup(uint64_t handle, std::string* bytes, int* messages = nullptr);
  grpc::Status DeleteBuffer(uint64_t handle);
  wire::GrpcIfrtService::Stub& stub() { return *stub_; }
  // Metadata of a store.
  void AddStoreMetadata(grpc::ClientContext& context, uint64_t handle, int64_t size) const;

  void Cancel() { context_.TryCancel(); }
  void HalfClose() { stream_->WritesDone(); }
  // Waits for the end of the session.
  grpc::Status Finish();

  static std::shared_ptr<grpc::Channel> Connect(int port);

 private:
  void ReadAll();

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<wire::GrpcIfrtService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::IfrtRequest, wire::IfrtResponse>> stream_;
  uint64_t session_id_ = 0;
  uint64_t next_op_id_ = 1;

  absl::Mutex mu_;
  std::map<uint64_t, wire::IfrtResponse> responses_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::thread reader_;
};

// Pieces of requests.
xla::ifrt::ShardingProto HloSharding(const std::vector<int32_t>& device_ids, const xla::OpSharding& sharding = {});
xla::OpSharding Tiled(const std::vector<int64_t>& tiles);  // over iota devices
xla::ifrt::DTypeProto F32();
xla::ifrt::ShapeProto Dims(const std::vector<int64_t>& dims);
wire::IfrtRequest MakeArrayRequest(uint64_t handle, int32_t device_id, const std::vector<int64_t>& dims);
wire::IfrtRequest CompileRequestFor(const std::string& program, const std::vector<int32_t>& device_ids);
wire::IfrtRequest ExecuteRequest(uint64_t executable, const std::vector<uint64_t>& arguments,
                                 const std::vector<uint64_t>& results = {});
wire::IfrtRequest ReadyRequest(const std::vector<uint64_t>& arrays);
wire::IfrtRequest DestructRequest(const std::vector<uint64_t>& arrays);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_TEST_CLIENT_H_
