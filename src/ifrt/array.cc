#include "ifrt/array.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/client_status.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {

Array::Array(ArraySpec spec, std::vector<ShardRef> shards) : spec_(std::move(spec)), shards_(std::move(shards)) {}

Array::Array(ArraySpec spec, absl::Status error) : spec_(std::move(spec)), error_(ForClient(error)) {}

Array::~Array() = default;

absl::Status Array::UsableLocked() const {
  if (deleted_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the array ", ToString(spec_.dtype), ToString(spec_.shape), " has been deleted or donated"));
  }
  if (!error_.ok()) return error_;
  for (const ShardRef& shard : shards_) {
    if (shard->worker()->lost()) return shard->worker()->status();
  }
  return absl::OkStatus();
}

absl::Status Array::Usable() const {
  std::lock_guard lock(mu_);
  return UsableLocked();
}

absl::StatusOr<std::vector<ShardRef>> Array::shards() const {
  std::lock_guard lock(mu_);
  RETURN_IF_ERROR(UsableLocked());
  return shards_;
}

absl::StatusOr<std::vector<ShardRef>> Array::TakeShards() {
  std::lock_guard lock(mu_);
  RETURN_IF_ERROR(UsableLocked());
  deleted_ = true;
  return std::exchange(shards_, {});
}

Future<> Array::Ready() const {
  std::vector<ShardRef> shards;
  {
    std::lock_guard lock(mu_);
    absl::Status usable = UsableLocked();
    if (!usable.ok()) return Future<>(std::move(usable));
    if (ready_.has_value()) return *ready_;
    shards = shards_;
  }
  Future<> ready = AwaitShards(shards);
  std::lock_guard lock(mu_);
  if (!ready_.has_value()) ready_ = ready;
  return ready;
}

Future<> Array::WhenAllReady(absl::Span<const std::shared_ptr<Array>> arrays) {
  if (arrays.size() == 1) return arrays[0]->Ready();
  std::vector<Future<>> all;
  std::vector<ShardRef> shards;
  std::vector<std::shared_ptr<Array>> asked;
  for (const std::shared_ptr<Array>& array : arrays) {
    std::lock_guard lock(array->mu_);
    absl::Status usable = array->UsableLocked();
    if (!usable.ok()) return Future<>(std::move(usable));
    if (array->ready_.has_value()) {
      all.push_back(*array->ready_);
      continue;
    }
    shards.insert(shards.end(), array->shards_.begin(), array->shards_.end());
    asked.push_back(array);
  }
  if (asked.empty()) return WhenAll(all);
  Future<> ready = AwaitShards(shards);
  ready.OnReady([asked = std::move(asked)](const absl::Status& status) {
    if (!status.ok()) return;  // whose error it is shows when they are asked one by one
    for (const std::shared_ptr<Array>& array : asked) {
      std::lock_guard lock(array->mu_);
      if (!array->ready_.has_value()) array->ready_ = Future<>(absl::OkStatus());
    }
  });
  all.push_back(std::move(ready));
  return WhenAll(all);
}

void Array::Delete() {
  std::vector<ShardRef> shards;  // dropped without the lock
  std::lock_guard lock(mu_);
  deleted_ = true;
  shards.swap(shards_);
}

bool Array::IsDeleted() const {
  std::lock_guard lock(mu_);
  return deleted_;
}

Future<HostDataRef> Array::ReadHost() const {
  absl::StatusOr<std::vector<ShardRef>> shards = this->shards();
  if (!shards.ok()) return Future<HostDataRef>(shards.status());
  if (shards->size() != 1 && !spec_.sharding->is_fully_replicated()) {
    return Future<HostDataRef>(absl::InvalidArgumentError(
        absl::StrCat("an array of ", shards->size(), " different shards cannot be read as a whole")));
  }
  return ReadShard(shards->front());
}

}  // namespace openpathways::ifrt
