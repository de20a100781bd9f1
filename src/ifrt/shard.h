// One shard of an array: a buffer on a worker.
#ifndef OPENPATHWAYS_IFRT_SHARD_H_
#define OPENPATHWAYS_IFRT_SHARD_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cluster/dispatcher.h"
#include "ifrt/array.h"

namespace openpathways::ifrt {

// Immutable. The buffer's name is known from the start, whether or not the buffer is there yet; it is deleted on the
// worker with this object. Whoever appends a command that uses it holds a reference until the command is in the
// worker's stream: then the delete comes later in the order.
class Shard {
 public:
  Shard(std::shared_ptr<cluster::Dispatcher> dispatcher, cluster::WorkerRef worker, uint64_t buffer)
      : dispatcher_(std::move(dispatcher)), worker_(std::move(worker)), buffer_(buffer) {}
  ~Shard() { dispatcher_->Delete(worker_, buffer_); }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const std::shared_ptr<cluster::Dispatcher>& dispatcher() const { return dispatcher_; }
  const cluster::WorkerRef& worker() const { return worker_; }
  uint64_t buffer() const { return buffer_; }

 private:
  const std::shared_ptr<cluster::Dispatcher> dispatcher_;
  const cluster::WorkerRef worker_;
  const uint64_t buffer_;
};

// Resolves when all buffers are there, or to the error of one that failed. One message per worker.
Future<> AwaitShards(const std::vector<ShardRef>& shards);

// The bytes of one shard.
Future<HostDataRef> ReadShard(const ShardRef& shard);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_SHARD_H_
