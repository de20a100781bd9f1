// Logical arrays: dtype, global shape, sharding, one shard per device of the sharding.
#ifndef OPENPATHWAYS_IFRT_ARRAY_H_
#define OPENPATHWAYS_IFRT_ARRAY_H_

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/future.h"
#include "ifrt/host_buffer.h"
#include "ifrt/sharding.h"

namespace openpathways::ifrt {

// One shard: a buffer on a worker, shared by all arrays that contain it; freed with the last of them. Defined in
// ifrt/shard.h; nothing outside this folder looks inside.
class Shard;
using ShardRef = std::shared_ptr<Shard>;

// An array that exists, is pending, or has failed: which of these it is shows when it is awaited. Its data are freed
// when the object dies or Delete is called, after work that was given to it before. Thread-safe.
class Array {
 public:
  Array(ArraySpec spec, std::vector<ShardRef> shards);
  // An array that has failed from the start: every use gives `error`.
  Array(ArraySpec spec, absl::Status error);
  ~Array();

  DType dtype() const { return spec_.dtype; }
  const Shape& shape() const { return spec_.shape; }
  const ShardingRef& sharding() const { return spec_.sharding; }
  const ArraySpec& spec() const { return spec_; }

  // OK, or why it cannot be used now: INVALID_ARGUMENT once deleted, its error if it failed from the start, DATA_LOSS
  // if a worker that holds a shard is gone. What has failed on a device is only known to Ready().
  absl::Status Usable() const;
  // Resolves when all shards are there, or to the error of the first one that failed.
  Future<> Ready() const;
  // Resolves when all are, or to the error of one that failed: with one request to each worker, however many arrays.
  static Future<> WhenAllReady(absl::Span<const std::shared_ptr<Array>> arrays);

  void Delete();
  bool IsDeleted() const;

  // The whole array from one shard: it must have a single shard or be fully replicated.
  Future<HostDataRef> ReadHost() const;

  // For this folder. Fails as Usable() does.
  absl::StatusOr<std::vector<ShardRef>> shards() const;
  // For this folder. As shards() and Delete() in one step, so that a shard's reference count tells whether another
  // array has it, too.
  absl::StatusOr<std::vector<ShardRef>> TakeShards();

 private:
  absl::Status UsableLocked() const;  // REQUIRES: mu_ is held

  const ArraySpec spec_;
  const absl::Status error_;
  mutable std::mutex mu_;  // guards what follows
  bool deleted_ = false;
  std::vector<ShardRef> shards_;
  mutable std::optional<Future<>> ready_;  // answered once, asked for often
};
using ArrayRef = std::shared_ptr<Array>;

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_ARRAY_H_
