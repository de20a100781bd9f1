// For tests: the worker's end of a controller's connection, in this process. Executes nothing, but keeps account of
// names as a worker does, and notes every breach of the rules.
#ifndef OPENPATHWAYS_CLUSTER_FAKE_WORKER_H_
#define OPENPATHWAYS_CLUSTER_FAKE_WORKER_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "worker/worker.pb.h"

namespace openpathways::cluster {

class FakeWorker {
 public:
  struct Received {
    worker::Command command;
    transport::Buffer payload;
  };

  FakeWorker(uint64_t id, int num_devices);
  ~FakeWorker();

  uint64_t id() const { return id_; }
  const std::string& address() const { return address_; }

  // Waits until `count` commands of this kind have come in all, and returns all of them. A test failure after a minute.
  std::vector<Received> Await(worker::Command::CommandCase kind, size_t count);
  // Every command up to now, in order.
  std::vector<Received> commands();

  // By default Await, Execute and ReadBuffer are answered at once, with OK; a buffer's bytes are those set here.
  void SetAnswering(bool answering);
  void SetBytes(uint64_t buffer, std::string bytes);
  void Reply(uint64_t request, const absl::Status& status);

  void Kill();  // as a crash does: connections break, nothing listens

  // Names used before they were made, made twice, or deleted twice.
  std::vector<std::string> violations();
  // Waits until exactly so many buffers are held. A test failure after a minute.
  void AwaitBuffers(size_t count);
  size_t executables();

 private:
  transport::ConnectionCallbacks Accept(transport::ConnectionRef connection);
  void OnMessage(transport::Message message);
  void Account(const worker::Command& command);
  void Answer(const worker::Command& command);
  void SendReply(uint64_t request, const absl::Status& status, int64_t size, transport::Buffer payload);
  void Violation(const std::string& text) { violations_.push_back(text); }

  const uint64_t id_;
  const int num_devices_;
  std::string address_;
  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  bool greeted_ = false;
  bool answering_ = true;
  transport::ConnectionRef connection_;
  std::vector<Received> commands_;
  std::set<uint64_t> buffers_;
  std::map<uint64_t, int> executables_;  // to its number of local devices
  std::map<uint64_t, std::string> bytes_;
  std::map<uint64_t, std::string> reads_;  // what is left of each
  std::vector<std::string> violations_;
  std::unique_ptr<transport::Transport> transport_;  // last: its thread uses all of the above
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_FAKE_WORKER_H_
