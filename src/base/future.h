// The project's one future type: a value (or error) that is set once and read by any number of callbacks or waiters.
//
// Thread-safe. Callbacks run exactly once: on the thread that fulfils the promise, or at once on the caller's thread if
// the value is there already. They must not block. A Promise that is destroyed without a value fulfils its future with
// an ABORTED error, so a future always resolves.
#ifndef OPENPATHWAYS_BASE_FUTURE_H_
#define OPENPATHWAYS_BASE_FUTURE_H_

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace openpathways {

namespace future_internal {
// Future<void> carries a plain Status; Future<T> a StatusOr<T>.
template <typename T>
using Result = std::conditional_t<std::is_void_v<T>, absl::Status, absl::StatusOr<T>>;

template <typename T>
struct State {
  using Callback = absl::AnyInvocable<void(const Result<T>&)>;
  std::mutex mu;
  std::condition_variable set;
  std::atomic<bool> ready{false};   // `result` is there, and may be read without the lock
  std::optional<Result<T>> result;  // never changes once set
  std::vector<Callback> callbacks;
};
}  // namespace future_internal

template <typename T = void>
class Future {
 public:
  using Result = future_internal::Result<T>;
  using Callback = typename future_internal::State<T>::Callback;

  // An already resolved future.
  explicit Future(Result result) : state_(std::make_shared<future_internal::State<T>>()) {
    state_->result.emplace(std::move(result));
    state_->ready.store(true, std::memory_order_release);
  }

  bool IsReady() const { return state_->ready.load(std::memory_order_acquire); }

  // Blocks the calling thread. Not for threads that serve others.
  const Result& Await() const {
    if (IsReady()) return *state_->result;
    std::unique_lock lock(state_->mu);
    state_->set.wait(lock, [this] { return state_->result.has_value(); });
    return *state_->result;
  }

  void OnReady(Callback callback) const {
    if (!IsReady()) {
      std::lock_guard lock(state_->mu);
      if (!state_->result.has_value()) {
        state_->callbacks.push_back(std::move(callback));
        return;
      }
    }
    callback(*state_->result);
  }

 private:
  template <typename U>
  friend class Promise;
  explicit Future(std::shared_ptr<future_internal::State<T>> state) : state_(std::move(state)) {}
  std::shared_ptr<future_internal::State<T>> state_;
};

// The writing end. Movable, not copyable.
template <typename T = void>
class Promise {
 public:
  using Result = future_internal::Result<T>;

  Promise() : state_(std::make_shared<future_internal::State<T>>()) {}
  Promise(Promise&&) = default;
  Promise& operator=(Promise&& other) {
    if (this != &other) {
      Abandon();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Promise() { Abandon(); }

  Future<T> future() const { return Future<T>(state_); }

  // Sets the result and runs the callbacks. Later calls are ignored.
  void Set(Result result) {
    std::vector<typename Future<T>::Callback> callbacks;
    {
      std::lock_guard lock(state_->mu);
      if (state_->result.has_value()) return;
      state_->result.emplace(std::move(result));
      state_->ready.store(true, std::memory_order_release);
      callbacks.swap(state_->callbacks);
      state_->set.notify_all();
    }
    for (auto& callback : callbacks) callback(*state_->result);
  }

 private:
  void Abandon() {
    if (state_ != nullptr) Set(Result(absl::AbortedError("the operation was dropped before it finished")));
  }
  std::shared_ptr<future_internal::State<T>> state_;
};

// Resolves when all of `futures` have: to OK or to the first error in list order.
Future<> WhenAll(const std::vector<Future<>>& futures);

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_FUTURE_H_
