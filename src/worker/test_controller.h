// A minimal controller for tests: one connection to one worker, with blocking calls.
#ifndef OPENPATHWAYS_WORKER_TEST_CONTROLLER_H_
#define OPENPATHWAYS_WORKER_TEST_CONTROLLER_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "transport/transport.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

inline constexpr int kF32 = 11;
inline constexpr int kS4 = 21;
inline constexpr int kS32 = 4;

// Thread-safe. Blocking calls give DEADLINE_EXCEEDED after 30 seconds.
class TestController {
 public:
  TestController(transport::Transport* transport, const std::string& address, uint64_t controller, uint64_t worker_id);
  ~TestController();

  // The Welcome, or UNAVAILABLE once the connection is closed.
  absl::StatusOr<Welcome> AwaitWelcome();
  absl::Status AwaitClosed();
  void Close() { connection_->Close(); }

  void Send(const Command& command, transport::Buffer payload = transport::Buffer());
  void SendRaw(std::string header) { connection_->Send(std::move(header)); }
  uint64_t NewRequest() { return next_request_++; }

  struct Answer {
    absl::Status status;
    int64_t size = 0;
    std::string payload;
  };
  Answer AwaitReply(uint64_t request);

  // Host data to one or several buffers, in pieces of `piece` bytes.
  void Put(const std::vector<Target>& targets, int element_type, const std::vector<int64_t>& dims,
           const std::string& bytes, const std::vector<int64_t>& byte_strides = {}, size_t piece = 1 << 20);
  template <typename T>
  void PutValues(uint64_t buffer, int device, int element_type, const std::vector<T>& values) {
    Put({MakeTarget(buffer, device)}, element_type, {static_cast<int64_t>(values.size())}, Bytes(values));
  }

  absl::Status AwaitBuffers(const std::vector<uint64_t>& buffers);
  // All bytes of a buffer; those beyond `max_inline` are fetched in pieces of `piece`.
  absl::StatusOr<std::string> Read(uint64_t buffer, int64_t max_inline = 1024, int64_t piece = 1 << 20);
  template <typename T>
  absl::StatusOr<std::vector<T>> ReadValues(uint64_t buffer) {
    absl::StatusOr<std::string> bytes = Read(buffer);
    if (!bytes.ok()) return bytes.status();
    std::vector<T> values(bytes->size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes->data(), bytes->size());
    return values;
  }
  void Delete(const std::vector<uint64_t>& buffers);

  static Target MakeTarget(uint64_t buffer, int device, const std::string& memory_kind = "");
  template <typename T>
  static std::string Bytes(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

 private:
  void OnMessage(const transport::Message& message);
  template <typename T>
  absl::StatusOr<T> AwaitIn(absl::flat_hash_map<uint64_t, T>& map, uint64_t key);

  transport::Transport* const transport_;
  transport::ConnectionRef connection_;
  std::atomic<uint64_t> next_request_{1};
  absl::Mutex mu_;
  absl::flat_hash_map<uint64_t, Answer> replies_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::pair<ReadData, std::string>> pieces_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Welcome> welcome_ ABSL_GUARDED_BY(mu_);  // under 0
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_TEST_CONTROLLER_H_
