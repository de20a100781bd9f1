#include "worker/program.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/collective_call.h"

namespace openpathways::worker {

Program::Program(const LoadExecutable& request, collectives::WorkerId self, std::shared_ptr<Stats> stats)
    : stats_(std::move(stats)), executable_(promise_.future()) {
  stats_->executables.fetch_add(1, std::memory_order_relaxed);
  absl::Status valid = CheckPlacement(request);
  if (valid.ok()) {
    for (uint32_t participant : request.placement()) {
      const collectives::WorkerId worker = request.participants(participant).worker_id();
      if (worker == self) local_devices_.push_back(static_cast<int64_t>(placement_.size()));
      placement_.push_back(worker);
    }
    if (local_devices_.empty()) valid = absl::InvalidArgumentError("the program has no device on this worker");
  }
  if (!valid.ok()) promise_.Set(valid);
}

Program::~Program() { stats_->executables.fetch_sub(1, std::memory_order_relaxed); }

absl::Status Program::CheckPlacement(const LoadExecutable& request) {
  for (uint32_t participant : request.placement()) {
    if (participant >= static_cast<uint32_t>(request.participants_size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement names participant ", participant, " of ", request.participants_size()));
    }
  }
  return absl::OkStatus();
}

void Program::Load(ThreadPool* pool, std::shared_ptr<pjrt::Client> client, transport::Buffer serialized,
                   std::string compile_options) {
  if (executable_.IsReady()) return;  // failed already
  pool->Post([self = shared_from_this(), client = std::move(client), serialized = std::move(serialized),
              compile_options = std::move(compile_options)] {
    auto executable = self->LoadNow(*client, serialized, compile_options);
    if (!executable.ok()) executable = AnnotateStatus(executable.status(), "loading an executable");
    self->promise_.Set(std::move(executable));
  });
}

absl::StatusOr<ExecutableRef> Program::LoadNow(pjrt::Client& client, const transport::Buffer& serialized,
                                               const std::string& compile_options) {
  const absl::string_view bytes(reinterpret_cast<const char*>(serialized.data()), serialized.size());
  ASSIGN_OR_RETURN(ExecutableRef executable, client.DeserializeAndLoad(bytes, compile_options));
  const std::vector<pjrt::Device*>& devices = executable->local_devices();
  if (devices.size() != local_devices_.size()) {
    return absl::InternalError(absl::StrCat("the controller placed it on ", local_devices_.size(),
                                            " devices of this worker, but the plugin loaded it on ", devices.size()));
  }
  return executable;
}

absl::StatusOr<const hlo::CollectiveDescriptor*> Program::Descriptor(absl::string_view attribute) {
  {
    absl::ReaderMutexLock lock(&mu_);
    if (auto it = descriptors_.find(attribute); it != descriptors_.end()) return it->second.get();
  }
  ASSIGN_OR_RETURN(hlo::CollectiveDescriptor descriptor, hlo::DecodeCollective(attribute));
  absl::MutexLock lock(&mu_);
  auto [entry, is_new] = descriptors_.try_emplace(std::string(attribute));
  if (is_new) entry->second = std::make_unique<hlo::CollectiveDescriptor>(std::move(descriptor));
  return entry->second.get();
}

}  // namespace openpathways::worker
