#include "worker/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/collective_call.h"
#include "pjrt/compile_options.h"
#include "worker/client_pool.h"

namespace openpathways::worker {

Program::Program(const LoadExecutable& request, collectives::WorkerId self, std::shared_ptr<Stats> stats)
    : stats_(std::move(stats)),
      straight_line_(request.straight_line()),
      few_steps_(request.few_steps()),
      parts_(promise_.future()) {
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

// What the loading of the parts, one task each, has in common.
struct Program::Loading {
  std::shared_ptr<Program> program;
  std::shared_ptr<pjrt::Client> client;
  transport::Buffer serialized;
  std::string compile_options;
  std::vector<int64_t> assignment;
  std::vector<std::vector<pjrt::Device*>> devices;  // of each part
  std::shared_ptr<ProgramParts> parts = std::make_shared<ProgramParts>();
  absl::Mutex mu;
  size_t missing ABSL_GUARDED_BY(mu) = 0;
  absl::Status status ABSL_GUARDED_BY(mu);

  void Done(const absl::Status& part_status) {
    absl::Status result;
    {
      absl::MutexLock lock(&mu);
      status.Update(part_status);
      if (--missing > 0) return;
      result = status;
    }
    if (result.ok()) {
      program->promise_.Set(ProgramPartsRef(parts));
    } else {
      program->promise_.Set(AnnotateStatus(result, "loading an executable"));
    }
  }
};

void Program::Load(ThreadPool* pool, std::shared_ptr<pjrt::Client> client, transport::Buffer serialized,
                   std::string compile_options) {
  if (parts_.IsReady()) return;  // failed already
  auto loading = std::make_shared<Loading>();
  auto prepare = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(loading->assignment, pjrt::ReadDeviceAssignment(compile_options));
    ASSIGN_OR_RETURN(loading->devices, DevicesOfParts(*client, loading->assignment));
    return absl::OkStatus();
  };
  if (absl::Status status = prepare(); !status.ok()) {
    promise_.Set(AnnotateStatus(status, "loading an executable"));
    return;
  }
  loading->program = shared_from_this();
  loading->client = std::move(client);
  loading->serialized = std::move(serialized);
  loading->compile_options = std::move(compile_options);
  const size_t num_parts = loading->devices.size();
  loading->parts->resize(num_parts);
  {
    absl::MutexLock lock(&loading->mu);
    loading->missing = num_parts;
  }
  for (size_t part = 0; part < num_parts; ++part) {
    pool->Post([loading, part] { loading->Done(LoadPart(*loading, part)); });
  }
}

absl::StatusOr<std::vector<std::vector<pjrt::Device*>>> Program::DevicesOfParts(
    const pjrt::Client& client, absl::Span<const int64_t> assignment) const {
  if (assignment.size() != placement_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the controller placed it on ", placement_.size(), " devices, but assigned ", assignment.size()));
  }
  std::vector<pjrt::Device*> devices;
  for (int64_t logical : local_devices_) {
    for (pjrt::Device* device : client.local_devices()) {
      if (device->id() == assignment[logical]) devices.push_back(device);
    }
  }
  if (devices.size() != local_devices_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the controller placed it on ", local_devices_.size(),
                                                   " devices of this worker, but assigned ", devices.size(),
                                                   " of its devices"));
  }
  if (!LaunchesPerDevice(client)) return std::vector<std::vector<pjrt::Device*>>{std::move(devices)};
  std::vector<std::vector<pjrt::Device*>> parts;
  for (pjrt::Device* device : devices) parts.push_back({device});
  return parts;
}

absl::Status Program::LoadPart(Loading& loading, size_t part) {
  // Ids of the CPU plugin are process * 2048 + ordinal, and processes are numbered from 0: this is nobody's.
  constexpr int64_t kForeign = int64_t{1} << 30;
  const std::vector<pjrt::Device*>& mine = loading.devices[part];
  const std::vector<pjrt::Device*>& all = loading.client->local_devices();
  auto has = [](const std::vector<pjrt::Device*>& devices, int64_t id) {
    return std::any_of(devices.begin(), devices.end(), [id](const pjrt::Device* device) { return device->id() == id; });
  };
  // The plugin loads a program on those devices of an assignment that its client has. To it, the other parts' devices
  // are another process's.
  std::vector<int64_t> assignment = loading.assignment;
  for (int64_t& id : assignment) {
    if (has(all, id) && !has(mine, id)) id += kForeign;
  }
  ASSIGN_OR_RETURN(std::string options, pjrt::WithDeviceAssignment(loading.compile_options, assignment));
  const absl::string_view bytes(reinterpret_cast<const char*>(loading.serialized.data()), loading.serialized.size());
  ProgramPart& result = (*loading.parts)[part];
  ASSIGN_OR_RETURN(result.executable, loading.client->DeserializeAndLoad(bytes, options));
  if (result.executable->local_devices() != mine) {
    return absl::InternalError(absl::StrCat("the plugin loaded it on ", result.executable->local_devices().size(),
                                            " devices of this worker instead of ", mine.size(), ", or on others"));
  }
  if (LaunchesPerDevice(*loading.client)) {
    result.queue = std::find(all.begin(), all.end(), mine[0]) - all.begin();
    result.first_device = part;
  }
  return absl::OkStatus();
}

void Program::AddDuration(int64_t nanos) {
  // Down at once, up slowly: the thread may have been interrupted. That a launch at the same time overwrites this one's
  // value does no harm.
  const int64_t typical = typical_nanos_.load(std::memory_order_relaxed);
  const int64_t bounded = std::clamp<int64_t>(nanos, 1, typical == 0 ? nanos + 1 : 2 * typical);
  const bool is_less = typical == 0 || bounded < typical;
  typical_nanos_.store(is_less ? bounded : typical + (bounded - typical) / 16, std::memory_order_relaxed);
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
