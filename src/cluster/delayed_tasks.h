// Runs small closures a little later, on one thread of its own.
#ifndef OPENPATHWAYS_CLUSTER_DELAYED_TASKS_H_
#define OPENPATHWAYS_CLUSTER_DELAYED_TASKS_H_

#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace openpathways::cluster {

// Thread-safe. Tasks must not block. Those that have not run when the object dies never do.
class DelayedTasks {
 public:
  DelayedTasks();
  ~DelayedTasks();

  void RunAfter(absl::Duration delay, absl::AnyInvocable<void()> task);

 private:
  void Run();

  absl::Mutex mu_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::multimap<absl::Time, absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_DELAYED_TASKS_H_
