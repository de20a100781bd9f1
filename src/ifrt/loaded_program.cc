#include "ifrt/loaded_program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "compiler/compile_options.h"
#include "pjrt/compile_options.h"

namespace openpathways::ifrt {
namespace {

// The program's bytes in memory that is handed to workers without another copy.
transport::Buffer ExecutableBytes(transport::Arena& arena, const compiler::CompiledProgramRef& compiled) {
  const std::string& bytes = compiled->serialized_executable;
  absl::StatusOr<transport::Buffer> buffer = arena.Allocate(bytes.size());
  if (buffer.ok()) {
    std::memcpy(buffer->data(), bytes.data(), bytes.size());
    return *std::move(buffer);
  }
  // Sent from where it is; buffers are not written to after they are made.
  auto owner = std::const_pointer_cast<compiler::CompiledProgram>(compiled);
  auto* data = reinterpret_cast<std::byte*>(owner->serialized_executable.data());
  return transport::Buffer(std::move(owner), data, bytes.size());
}

// What a LoadExecutable says of the participants, which is known when all of them are up; the same for each of them.
class Assignment {
 public:
  Assignment(std::vector<cluster::WorkerRef> workers, std::vector<std::pair<uint32_t, int>> places,
             std::string compile_options)
      : workers_(std::move(workers)), places_(std::move(places)), compile_options_(std::move(compile_options)) {}

  void Fill(worker::LoadExecutable& load) {
    std::call_once(once_, [this] { Compute(); });
    load.set_compile_options(assigned_options_);
    for (const worker::WorkerAddress& address : addresses_) *load.add_participants() = address;
  }

 private:
  void Compute() {
    std::vector<std::vector<int64_t>> ids;
    for (const cluster::WorkerRef& worker : workers_) {
      ids.push_back(worker->plugin_device_ids());
      addresses_.push_back(worker->address());
    }
    std::vector<int64_t> devices;
    for (auto [participant, ordinal] : places_) {
      // A worker that was lost before it came up has no ids; the launch fails with it, whatever stands here.
      const bool known = ordinal < static_cast<int>(ids[participant].size());
      devices.push_back(known ? ids[participant][ordinal] : -1 - static_cast<int64_t>(devices.size()));
    }
    absl::StatusOr<std::string> options = pjrt::WithDeviceAssignment(compile_options_, devices);
    // LoadedProgram::Create has tried it with as many devices.
    if (options.ok()) assigned_options_ = *std::move(options);
    workers_.clear();
  }

  std::once_flag once_;
  std::vector<cluster::WorkerRef> workers_;
  const std::vector<std::pair<uint32_t, int>> places_;  // of each shard: participant, ordinal of the device
  const std::string compile_options_;
  std::vector<worker::WorkerAddress> addresses_;
  std::string assigned_options_;
};

}  // namespace

Loading::~Loading() {
  for (const cluster::WorkerRef& worker : workers) {
    cluster::Outgoing outgoing;
    outgoing.command.mutable_unload_executable()->set_executable(executable);
    dispatcher->Send(worker, std::move(outgoing));
  }
}

LoadedProgram::LoadedProgram(const cluster::Cluster& cluster, compiler::CompiledProgramRef compiled,
                             std::string compile_options, DeviceList devices)
    : cluster_(cluster),
      compiled_(std::move(compiled)),
      compile_options_(std::move(compile_options)),
      devices_(std::move(devices)) {
  for (size_t k = 0; k < devices_.size(); ++k) {
    const Device& device = *devices_[k];
    auto found = std::find_if(participants_.begin(), participants_.end(), [&](const Participant& participant) {
      return participant.slice == device.slice && participant.host == device.host;
    });
    if (found == participants_.end()) {
      found = participants_.insert(participants_.end(), {device.slice, device.host, {}});
    }
    found->shards.push_back(static_cast<int>(k));
    placement_.push_back(static_cast<uint32_t>(found - participants_.begin()));
  }
  executable_bytes_ = ExecutableBytes(cluster_.transport().arena(), compiled_);
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> LoadedProgram::Create(const cluster::Cluster& cluster,
                                                                     compiler::CompiledProgramRef compiled,
                                                                     std::string compile_options, DeviceList devices) {
  // As the compiler has used them: loading must not bring back what it took out.
  ASSIGN_OR_RETURN(std::string options, compiler::NormalizeCompileOptions(compile_options));
  std::vector<int64_t> any_ids(devices.size());
  RETURN_IF_ERROR(pjrt::WithDeviceAssignment(options, any_ids).status());
  return std::shared_ptr<LoadedProgram>(
      new LoadedProgram(cluster, std::move(compiled), std::move(options), std::move(devices)));
}

absl::StatusOr<std::shared_ptr<const Loading>> LoadedProgram::Load() {
  std::vector<cluster::WorkerRef> workers;
  for (const Participant& participant : participants_) {
    workers.push_back(cluster_.worker(participant.slice, participant.host));
    RETURN_IF_ERROR(workers.back()->status());
  }
  std::shared_ptr<const Loading> replaced;  // unloaded without the lock
  std::lock_guard lock(mu_);
  if (loading_ == nullptr || loading_->workers != workers) {
    replaced = std::exchange(loading_, BeginLoading(std::move(workers)));
  }
  return loading_;
}

std::shared_ptr<const Loading> LoadedProgram::BeginLoading(std::vector<cluster::WorkerRef> workers) const {
  auto loading = std::make_shared<Loading>();
  loading->dispatcher = cluster_.dispatcher();
  loading->workers = std::move(workers);
  loading->executable = loading->dispatcher->NewNames();

  std::vector<std::pair<uint32_t, int>> places;
  for (size_t k = 0; k < devices_.size(); ++k) places.emplace_back(placement_[k], devices_[k]->ordinal);
  auto assignment = std::make_shared<Assignment>(loading->workers, std::move(places), compile_options_);
  cluster::Operation operation;
  for (const cluster::WorkerRef& worker : loading->workers) {
    cluster::Outgoing outgoing;
    worker::LoadExecutable* load = outgoing.command.mutable_load_executable();
    load->set_executable(loading->executable);
    load->mutable_placement()->Add(placement_.begin(), placement_.end());
    load->set_straight_line(compiled_->program.straight_line());
    load->set_few_steps(compiled_->program.few_steps());
    outgoing.payload = executable_bytes_;
    outgoing.complete = [assignment](worker::Command& command) {
      assignment->Fill(*command.mutable_load_executable());
    };
    operation.parts.push_back({worker, std::move(outgoing)});
  }
  // A single participant's identity is known when anything is sent to it at all.
  if (loading->workers.size() > 1) operation.needs = loading->workers;
  loading->dispatcher->Dispatch(std::move(operation));
  return loading;
}

absl::StatusOr<LoadedProgramRef> LoadedPrograms::FindOrCreate(const cluster::Cluster& cluster,
                                                              compiler::CompiledProgramRef compiled,
                                                              std::string compile_options, DeviceList devices) {
  Key key(compiled.get(), devices);
  LoadedProgramRef program;
  std::vector<LoadedProgramRef> dropped;  // unloaded without the lock
  std::lock_guard lock(mu_);
  if (auto found = programs_.find(key); found != programs_.end()) program = found->second.lock();
  if (program != nullptr) {
    dropped = Keep(program);
    return program;
  }
  absl::erase_if(programs_, [](const auto& entry) { return entry.second.expired(); });
  ASSIGN_OR_RETURN(program,
                   LoadedProgram::Create(cluster, std::move(compiled), std::move(compile_options), std::move(devices)));
  programs_[std::move(key)] = program;
  dropped = Keep(program);
  return program;
}

std::vector<LoadedProgramRef> LoadedPrograms::Keep(LoadedProgramRef program) {
  std::vector<LoadedProgramRef> dropped;
  kept_.remove(program);
  kept_.push_front(std::move(program));
  size_t bytes = 0;
  for (const LoadedProgramRef& kept : kept_) bytes += kept->serialized_size();
  while (kept_.size() > kMaxKept || bytes > kMaxKeptBytes) {
    bytes -= kept_.back()->serialized_size();
    dropped.push_back(std::move(kept_.back()));
    kept_.pop_back();
  }
  return dropped;
}

}  // namespace openpathways::ifrt
