// An executable of one controller on this worker: loaded in the background, with what its launches need to know.
#ifndef OPENPATHWAYS_WORKER_PROGRAM_H_
#define OPENPATHWAYS_WORKER_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/future.h"
#include "collectives/engine.h"
#include "hlo/collective.pb.h"
#include "pjrt/pjrt.h"
#include "transport/buffer.h"
#include "worker/executor.h"
#include "worker/stats.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

using ExecutableRef = std::shared_ptr<pjrt::LoadedExecutable>;

// Thread-safe. Shared by the controller's table and by launches.
class Program : public std::enable_shared_from_this<Program> {
 public:
  // A program with an invalid placement is made, too: it has failed.
  Program(const LoadExecutable& request, collectives::WorkerId self, std::shared_ptr<Stats> stats);
  ~Program();

  // Starts the loading on `pool`. Once.
  void Load(ThreadPool* pool, std::shared_ptr<pjrt::Client> client, transport::Buffer serialized,
            std::string compile_options);

  // Resolves when the executable has been loaded, or to the error.
  const Future<ExecutableRef>& executable() const { return executable_; }

  // Logical devices that are this worker's, ascending.
  const std::vector<int64_t>& local_devices() const { return local_devices_; }
  // Whoever holds it keeps the program, and so the descriptors, alive.
  std::shared_ptr<const collectives::Placement> placement() { return {shared_from_this(), &placement_}; }
  // The collective that a custom call's attribute describes (base64 of a CollectiveDescriptor). Parsed once; valid
  // while the program lives.
  absl::StatusOr<const hlo::CollectiveDescriptor*> Descriptor(absl::string_view attribute);

 private:
  static absl::Status CheckPlacement(const LoadExecutable& request);
  absl::StatusOr<ExecutableRef> LoadNow(pjrt::Client& client, const transport::Buffer& serialized,
                                        const std::string& compile_options);

  const std::shared_ptr<Stats> stats_;
  Promise<ExecutableRef> promise_;
  const Future<ExecutableRef> executable_;
  collectives::Placement placement_;
  std::vector<int64_t> local_devices_;

  absl::Mutex mu_;
  absl::flat_hash_map<std::string, std::unique_ptr<hlo::CollectiveDescriptor>> descriptors_ ABSL_GUARDED_BY(mu_);
};
using ProgramRef = std::shared_ptr<Program>;

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_PROGRAM_H_
