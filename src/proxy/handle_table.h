// Handles of one session and what they stand for.
#ifndef OPENPATHWAYS_PROXY_HANDLE_TABLE_H_
#define OPENPATHWAYS_PROXY_HANDLE_TABLE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace openpathways::proxy {

// Handles at and above this number are chosen by the server, all others by the client.
inline constexpr uint64_t kFirstServerHandle = uint64_t{1} << 48;

// `T` is cheap to copy (a reference). Values are destroyed outside the lock. Thread-safe.
template <typename T>
class HandleTable {
 public:
  // `kind` appears in errors: "Unknown array handle: 7".
  explicit HandleTable(std::string kind) : kind_(std::move(kind)) {}

  // ALREADY_EXISTS for a handle that is in use; CANCELLED once closed.
  absl::Status Insert(uint64_t handle, T value) {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::CancelledError("the session has ended");
    if (!values_.try_emplace(handle, std::move(value)).second) {
      return absl::AlreadyExistsError(absl::StrCat("The ", kind_, " handle ", handle, " is in use already"));
    }
    return absl::OkStatus();
  }

  bool Contains(uint64_t handle) const {
    absl::MutexLock lock(&mu_);
    return values_.contains(handle);
  }

  absl::StatusOr<T> Find(uint64_t handle) const {
    absl::MutexLock lock(&mu_);
    auto it = values_.find(handle);
    if (it == values_.end()) return Unknown(handle);
    return it->second;
  }

  // Removes the handle.
  absl::StatusOr<T> Take(uint64_t handle) {
    absl::MutexLock lock(&mu_);
    auto it = values_.find(handle);
    if (it == values_.end()) return Unknown(handle);
    T value = std::move(it->second);
    values_.erase(it);
    return value;
  }

  // Drops everything, now and later.
  void Close() {
    absl::flat_hash_map<uint64_t, T> dropped;
    absl::MutexLock lock(&mu_);
    closed_ = true;
    dropped.swap(values_);
    // `dropped` was declared before the lock, so the values die after it is released.
  }

  size_t size() const {
    absl::MutexLock lock(&mu_);
    return values_.size();
  }

 private:
  absl::Status Unknown(uint64_t handle) const {
    return absl::NotFoundError(absl::StrCat("Unknown ", kind_, " handle: ", handle));
  }

  const std::string kind_;
  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint64_t, T> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_HANDLE_TABLE_H_
