// Only in builds with the thread sanitizer. Debian's Abseil is not instrumented, so the sanitizer does not see that
// absl::Mutex orders what two threads do, and would report every piece of data that one guards. Here each member function
// is defined once more, in the executable, which comes before the library for all callers (gRPC's, too): it calls the
// library's and tells the sanitizer.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

#define UNINSTRUMENTED __attribute__((no_sanitize("thread")))

namespace {

// The library's function of that (mangled) name. `cache` keeps it; finding it twice does no harm.
template <typename Function>
UNINSTRUMENTED Function Library(std::atomic<void*>& cache, const char* name) {
  void* function = cache.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = dlsym(RTLD_NEXT, name);
    if (function == nullptr) {
      std::fprintf(stderr, "the thread sanitizer's Abseil annotations do not fit this Abseil: no %s\n", name);
      std::abort();
    }
    cache.store(function, std::memory_order_release);
  }
  return reinterpret_cast<Function>(function);
}

}  // namespace

#define MUTEX_PREFIX "_ZN4absl7debian35Mutex"
#define CONDVAR_PREFIX "_ZN4absl7debian37CondVar"
#define NOTIFICATION_PREFIX "_ZNK4absl7debian312Notification"

// Calls the library's function NAME with the given argument types and arguments, `this` first.
#define CALL(RESULT, NAME, TYPES, ...)                                                  \
  [&]() -> RESULT {                                                                     \
    static std::atomic<void*> cache{nullptr};                                           \
    return Library<RESULT(*) TYPES>(cache, NAME)(__VA_ARGS__);                          \
  }()

namespace absl {
ABSL_NAMESPACE_BEGIN

UNINSTRUMENTED void Mutex::Lock() {
  CALL(void, MUTEX_PREFIX "4LockEv", (Mutex*), this);
  __tsan_acquire(this);
}

UNINSTRUMENTED void Mutex::Unlock() {
  __tsan_release(this);
  CALL(void, MUTEX_PREFIX "6UnlockEv", (Mutex*), this);
}

UNINSTRUMENTED bool Mutex::TryLock() {
  const bool locked = CALL(bool, MUTEX_PREFIX "7TryLockEv", (Mutex*), this);
  if (locked) __tsan_acquire(this);
  return locked;
}

UNINSTRUMENTED void Mutex::ReaderLock() {
  CALL(void, MUTEX_PREFIX "10ReaderLockEv", (Mutex*), this);
  __tsan_acquire(this);
}

UNINSTRUMENTED void Mutex::ReaderUnlock() {
  __tsan_release(this);
  CALL(void, MUTEX_PREFIX "12ReaderUnlockEv", (Mutex*), this);
}

UNINSTRUMENTED void Mutex::Await(const Condition& condition) {
  __tsan_release(this);
  CALL(void, MUTEX_PREFIX "5AwaitERKNS0_9ConditionE", (Mutex*, const Condition&), this, condition);
  __tsan_acquire(this);
}

UNINSTRUMENTED bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  __tsan_release(this);
  const bool holds = CALL(bool, MUTEX_PREFIX "16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                          (Mutex*, const Condition&, Duration), this, condition, timeout);
  __tsan_acquire(this);
  return holds;
}

UNINSTRUMENTED bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  __tsan_release(this);
  const bool holds = CALL(bool, MUTEX_PREFIX "17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                          (Mutex*, const Condition&, Time), this, condition, deadline);
  __tsan_acquire(this);
  return holds;
}

UNINSTRUMENTED void Mutex::LockWhen(const Condition& condition) {
  CALL(void, MUTEX_PREFIX "8LockWhenERKNS0_9ConditionE", (Mutex*, const Condition&), this, condition);
  __tsan_acquire(this);
}

UNINSTRUMENTED bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  const bool holds = CALL(bool, MUTEX_PREFIX "19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                          (Mutex*, const Condition&, Duration), this, condition, timeout);
  __tsan_acquire(this);
  return holds;
}

UNINSTRUMENTED void CondVar::Wait(Mutex* mutex) {
  __tsan_release(mutex);
  CALL(void, CONDVAR_PREFIX "4WaitEPNS0_5MutexE", (CondVar*, Mutex*), this, mutex);
  __tsan_acquire(mutex);
}

UNINSTRUMENTED bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  __tsan_release(mutex);
  const bool timed_out = CALL(bool, CONDVAR_PREFIX "15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
                              (CondVar*, Mutex*, Duration), this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

UNINSTRUMENTED bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  __tsan_release(mutex);
  const bool timed_out = CALL(bool, CONDVAR_PREFIX "16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
                              (CondVar*, Mutex*, Time), this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

UNINSTRUMENTED void Notification::Notify() {
  __tsan_release(this);
  CALL(void, "_ZN4absl7debian312Notification6NotifyEv", (Notification*), this);
}

UNINSTRUMENTED void Notification::WaitForNotification() const {
  CALL(void, NOTIFICATION_PREFIX "19WaitForNotificationEv", (const Notification*), this);
  __tsan_acquire(const_cast<Notification*>(this));
}

UNINSTRUMENTED bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  const bool notified = CALL(bool, NOTIFICATION_PREFIX "30WaitForNotificationWithTimeoutENS0_8DurationE",
                             (const Notification*, Duration), this, timeout);
  __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
