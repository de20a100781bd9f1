// Threads on which programs go on after an asynchronous custom call. Private.
//
// The CPU plugin runs everything that waited for a call on the thread that ends the call, up to the next asynchronous
// call or the end of the program. If one thread ended the calls of all local devices, the devices would compute one
// after the other. Threads are started when all others are busy, up to a limit, and stay for the life of the process.
#ifndef OPENPATHWAYS_PJRT_COMPLETION_THREADS_H_
#define OPENPATHWAYS_PJRT_COMPLETION_THREADS_H_

#include <cstddef>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace openpathways::pjrt {

class CompletionThreads {
 public:
  static CompletionThreads& Get();  // the one of this process

  // Runs `task` soon on another thread. Tasks must not wait for each other: there may be no thread for the other one.
  void Run(absl::AnyInvocable<void()> task);

 private:
  CompletionThreads() = default;
  void Loop();

  absl::Mutex mu_;
  absl::CondVar wake_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  size_t idle_ ABSL_GUARDED_BY(mu_) = 0;
  size_t threads_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_COMPLETION_THREADS_H_
