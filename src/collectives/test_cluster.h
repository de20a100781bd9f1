// For tests: several engines in one process, connected by a network in memory.
//
// Messages between two workers stay in order; between different pairs the order, and the thread that delivers, are
// random. Thread-safe.
#ifndef OPENPATHWAYS_COLLECTIVES_TEST_CLUSTER_H_
#define OPENPATHWAYS_COLLECTIVES_TEST_CLUSTER_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/engine.h"

namespace openpathways::collectives {

class TestCluster {
 public:
  struct Options {
    int workers = 1;
    int compute_threads = 2;
    int delivery_threads = 2;
    uint64_t seed = 1;
    // Payload memory of each worker.
    size_t memory_limit = std::numeric_limits<size_t>::max();
    // Keep freed payload memory for the next of that size, as an Arena does. Off, sanitizers see a use after free.
    bool reuse_memory = false;
  };
  explicit TestCluster(const Options& options);
  ~TestCluster();

  // Workers are numbered from 1.
  Engine& engine(WorkerId worker) { return *engines_.at(worker - 1); }

  // Messages are kept until Resume.
  void Pause();
  void Resume();
  // Waits until no message is under way.
  void Drain();
  // Messages to and from the worker vanish from now on.
  void Disconnect(WorkerId worker);
  // Payload memory in use, of all workers.
  size_t allocated_bytes() const;
  int64_t messages_sent() const { return messages_sent_; }
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Envelope {
    std::string header;
    transport::Buffer payload;
  };
  struct Route {
    std::deque<Envelope> messages;
    bool delivering = false;
  };
  using Pair = std::pair<WorkerId, WorkerId>;  // from, to
  class Memory;
  class Network;

  void Send(WorkerId from, WorkerId to, std::string header, transport::Buffer payload);
  void DeliveryMain(uint64_t seed);
  bool HasDeliverable() const;
  bool IsIdle() const;

  const std::shared_ptr<Memory> memory_;
  std::atomic<int64_t> messages_sent_ = 0;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::mutex mu_;  // guards what follows, up to stopping_
  std::condition_variable changed_;
  std::map<Pair, Route> routes_;
  std::vector<bool> disconnected_;
  bool paused_ = false;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Network>> networks_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::thread> delivery_;
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_TEST_CLUSTER_H_
