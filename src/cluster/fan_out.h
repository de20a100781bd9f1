// Sends what has been appended to the streams of many workers, on a thread of its own.
//
// A launch on hundreds of workers takes as many system calls. Meanwhile the thread that has appended it goes on with
// the next one; what it appends to a worker before that worker's turn has come goes out in the same call.
#ifndef OPENPATHWAYS_CLUSTER_FAN_OUT_H_
#define OPENPATHWAYS_CLUSTER_FAN_OUT_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "cluster/worker.h"

namespace openpathways::cluster {

// Thread-safe.
class FanOut {
 public:
  FanOut();
  ~FanOut();  // sends what is due

  // Returns at once; each worker's stream is flushed soon.
  void Flush(std::vector<WorkerRef> workers);

 private:
  void Run();

  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<WorkerRef> due_;
  std::thread thread_;
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_FAN_OUT_H_
