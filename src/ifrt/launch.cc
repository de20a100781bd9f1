#include "ifrt/launch.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "ifrt/client_status.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

using Shards = std::vector<ShardRef>;

void NoteLonger(std::atomic<int64_t>& longest, int64_t nanos) {
  int64_t known = longest.load();
  while (nanos > known && !longest.compare_exchange_weak(known, nanos)) {
  }
}

class ProgramExecutable : public LoadedExecutable {
 public:
  ProgramExecutable(LoadedProgramRef program, std::vector<ArraySpec> output_specs)
      : loaded_(std::move(program)), output_specs_(std::move(output_specs)), accepted_(program_size()) {
    const auto& donated = this->program().donated_parameters();
    donated_.resize(program_size(), false);
    for (int parameter : donated) {
      if (parameter >= 0 && parameter < static_cast<int>(donated_.size())) donated_[parameter] = true;
    }
  }

  const compiler::Program& program() const override { return loaded_->compiled()->program; }
  compiler::CompiledProgramRef compiled() const override { return loaded_->compiled(); }
  const DeviceList& devices() const override { return loaded_->devices(); }
  const std::vector<ArraySpec>& output_specs() const override { return output_specs_; }

  absl::StatusOr<ExecuteResult> Execute(const std::vector<ArrayRef>& arguments, const ExecuteOptions& options) override;
  absl::StatusOr<LoadedExecutableRef> OnDevices(DeviceList devices) override;

 private:
  // What was found to fit a parameter, so that the next array like it needs no second look.
  struct Accepted {
    ShardingRef sharding;
    Shape shape;
    DType dtype = DType::kInvalid;
    std::vector<int64_t> minor_to_major;
  };

  size_t program_size() const { return program().parameters_size(); }
  absl::Status CheckArgument(size_t j, const Array& argument);
  absl::Status CheckShardShapes(size_t j, const Array& argument) const;
  std::vector<bool> Donations(const ExecuteOptions& options) const;
  absl::Status CheckDonations(const std::vector<ArrayRef>& arguments, const std::vector<bool>& donate) const;
  ExecuteResult Failed(const std::vector<ArrayRef>& arguments, const std::vector<bool>& donate,
                       const absl::Status& status) const;
  // The launch itself. DATA_LOSS if a worker of it or a shard's worker is lost.
  absl::StatusOr<ExecuteResult> Launch(const std::vector<Shards>& arguments, const std::vector<int>& keep, bool donates,
                                       bool want_status);
  absl::StatusOr<cluster::Outgoing> ExecuteCommand(const Loading& loading, size_t participant,
                                                   const std::vector<Shards>& arguments,
                                                   const std::vector<int>& keep) const;

  const LoadedProgramRef loaded_;
  const std::vector<ArraySpec> output_specs_;
  std::vector<bool> donated_;       // by parameter
  std::mutex mu_;                   // guards what follows
  std::vector<Accepted> accepted_;  // by parameter
  absl::flat_hash_map<DeviceList, LoadedExecutableRef> elsewhere_;
};

absl::Status ProgramExecutable::CheckShardShapes(size_t j, const Array& argument) const {
  const compiler::Array& parameter = program().parameters(static_cast<int>(j));
  const DType dtype = static_cast<DType>(parameter.element_type());
  const Shape expected(parameter.dims().begin(), parameter.dims().end());
  // Clients feed tokens with an empty array.
  if (dtype == DType::kToken) return absl::OkStatus();
  auto describe = [&](const std::string& problem) {
    return absl::InvalidArgumentError(absl::StrCat("argument ", j, " of ", program().name(), ": ", problem));
  };
  if (argument.dtype() != dtype) {
    return describe(absl::StrCat("expected ", ToString(dtype), ", got ", ToString(argument.dtype())));
  }
  if (LayoutOf(parameter) != argument.spec().minor_to_major) {
    return describe(absl::StrCat("expected the layout {", absl::StrJoin(LayoutOf(parameter), ","), "}, got {",
                                 absl::StrJoin(argument.spec().minor_to_major, ","),
                                 "} (minor to major; none is row-major)"));
  }
  for (size_t k = 0; k < devices().size(); ++k) {
    absl::StatusOr<Shape> shape = argument.sharding()->ShardShape(argument.shape(), static_cast<int>(k));
    if (!shape.ok()) return describe(std::string(shape.status().message()));
    if (*shape != expected) {
      return describe(absl::StrCat("expected shards of shape ", ToString(expected), ", got ", ToString(*shape),
                                   " (shard ", k, " of an array of shape ", ToString(argument.shape()), ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramExecutable::CheckArgument(size_t j, const Array& argument) {
  {
    std::lock_guard lock(mu_);
    const Accepted& known = accepted_[j];
    if (known.sharding == argument.sharding() && known.dtype == argument.dtype() && known.shape == argument.shape() &&
        known.minor_to_major == argument.spec().minor_to_major) {
      return absl::OkStatus();
    }
  }
  if (argument.sharding()->devices() != devices()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "argument ", j, " of ", program().name(), ": expected shards on the program's ", devices().size(),
        " devices, in their order; got an array over ", argument.sharding()->devices().size(), " devices or others"));
  }
  RETURN_IF_ERROR(CheckShardShapes(j, argument));
  std::lock_guard lock(mu_);
  accepted_[j] = {argument.sharding(), argument.shape(), argument.dtype(), argument.spec().minor_to_major};
  return absl::OkStatus();
}

std::vector<bool> ProgramExecutable::Donations(const ExecuteOptions& options) const {
  std::vector<bool> donate = donated_;
  for (int keep : options.non_donatable_inputs) {
    if (keep >= 0 && keep < static_cast<int>(donate.size())) donate[keep] = false;
  }
  return donate;
}

absl::Status ProgramExecutable::CheckDonations(const std::vector<ArrayRef>& arguments,
                                               const std::vector<bool>& donate) const {
  if (std::find(donate.begin(), donate.end(), true) == donate.end()) return absl::OkStatus();
  absl::flat_hash_map<const Array*, size_t> seen;
  for (size_t j = 0; j < arguments.size(); ++j) {
    auto [found, is_new] = seen.try_emplace(arguments[j].get(), j);
    if (is_new || (!donate[j] && !donate[found->second])) continue;
    return absl::InvalidArgumentError(absl::StrCat("arguments ", found->second, " and ", j, " of ", program().name(),
                                                   " are the same array, and one of them is donated"));
  }
  return absl::OkStatus();
}

ExecuteResult ProgramExecutable::Failed(const std::vector<ArrayRef>& arguments, const std::vector<bool>& donate,
                                        const absl::Status& status) const {
  for (size_t j = 0; j < arguments.size(); ++j) {
    if (donate[j]) arguments[j]->Delete();
  }
  ExecuteResult result{{}, Future<>(ForClient(status))};
  for (const ArraySpec& spec : output_specs_) result.outputs.push_back(std::make_shared<Array>(spec, status));
  return result;
}

absl::StatusOr<ExecuteResult> ProgramExecutable::Execute(const std::vector<ArrayRef>& arguments,
                                                         const ExecuteOptions& options) {
  if (arguments.size() != program_size()) {
    return absl::InvalidArgumentError(absl::StrCat("the program ", program().name(), " takes ", program_size(),
                                                   " arguments, got ", arguments.size()));
  }
  for (size_t j = 0; j < arguments.size(); ++j) RETURN_IF_ERROR(CheckArgument(j, *arguments[j]));
  const std::vector<bool> donate = Donations(options);
  RETURN_IF_ERROR(CheckDonations(arguments, donate));

  // A lost worker is found on the results, so that clients can go on enqueuing; whatever else is wrong with an argument
  // is an error of the call.
  absl::Status lost;
  for (const ArrayRef& argument : arguments) {
    absl::Status usable = argument->Usable();
    if (!usable.ok() && !absl::IsDataLoss(usable)) return usable;
    if (lost.ok()) lost = std::move(usable);
  }
  if (!lost.ok()) return Failed(arguments, donate, lost);

  std::vector<Shards> shards(arguments.size());
  std::vector<int> keep;  // parameters that must survive the launch
  for (size_t j = 0; j < arguments.size(); ++j) {
    absl::StatusOr<Shards> of_argument = donate[j] ? arguments[j]->TakeShards() : arguments[j]->shards();
    if (absl::IsDataLoss(of_argument.status())) return Failed(arguments, donate, of_argument.status());
    if (!of_argument.ok()) return of_argument.status();
    shards[j] = *std::move(of_argument);
  }
  for (size_t j = 0; j < arguments.size(); ++j) {
    if (!donated_[j]) continue;
    const bool shared =
        std::any_of(shards[j].begin(), shards[j].end(), [](const ShardRef& shard) { return shard.use_count() > 1; });
    if (!donate[j] || shared) keep.push_back(static_cast<int>(j));
  }
  const bool donates = keep.size() < static_cast<size_t>(std::count(donated_.begin(), donated_.end(), true));
  absl::StatusOr<ExecuteResult> result = Launch(shards, keep, donates, options.want_status);
  if (absl::IsDataLoss(result.status())) return Failed(arguments, donate, result.status());
  return result;
}

absl::StatusOr<cluster::Outgoing> ProgramExecutable::ExecuteCommand(const Loading& loading, size_t participant,
                                                                    const std::vector<Shards>& arguments,
                                                                    const std::vector<int>& keep) const {
  const cluster::WorkerRef& worker = loading.workers[participant];
  const std::vector<int>& local = loaded_->participants()[participant].shards;
  cluster::Outgoing outgoing;
  worker::Execute* execute = outgoing.command.mutable_execute();
  execute->set_executable(loading.executable);
  execute->mutable_arguments()->Reserve(static_cast<int>(arguments.size() * local.size()));
  for (const Shards& argument : arguments) {
    for (int shard : local) {
      // A worker that is not the place's worker any more has been lost.
      if (argument[shard]->worker() != worker) {
        RETURN_IF_ERROR(argument[shard]->worker()->status());
        RETURN_IF_ERROR(worker->status());
        return absl::DataLossError(absl::StrCat("a shard was lost with the former worker of ", worker->name()));
      }
      execute->add_arguments(argument[shard]->buffer());
    }
  }
  outgoing.num_result_buffers = static_cast<int64_t>(output_specs_.size() * local.size());
  execute->set_num_results(static_cast<int32_t>(output_specs_.size()));
  execute->mutable_non_donatable()->Add(keep.begin(), keep.end());
  return outgoing;
}

absl::StatusOr<ExecuteResult> ProgramExecutable::Launch(const std::vector<Shards>& arguments,
                                                        const std::vector<int>& keep, bool donates, bool want_status) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Loading> loading, loaded_->Load());
  const std::shared_ptr<cluster::Dispatcher>& dispatcher = loading->dispatcher;
  cluster::Operation operation;
  for (size_t p = 0; p < loading->workers.size(); ++p) {
    ASSIGN_OR_RETURN(cluster::Outgoing outgoing, ExecuteCommand(*loading, p, arguments, keep));
    operation.parts.push_back({loading->workers[p], std::move(outgoing)});
  }
  std::vector<Shards> outputs(output_specs_.size(), Shards(devices().size()));
  std::vector<Future<>> finished;
  auto device_nanos = std::make_shared<std::atomic<int64_t>>(0);
  for (size_t p = 0; p < operation.parts.size(); ++p) {
    cluster::Outgoing& outgoing = operation.parts[p].outgoing;
    worker::Execute* execute = outgoing.command.mutable_execute();
    uint64_t buffer = dispatcher->NewNames(outgoing.num_result_buffers);
    execute->set_first_result(buffer);
    outgoing.donates = donates;
    for (Shards& output : outputs) {
      for (int shard : loaded_->participants()[p].shards) {
        output[shard] = std::make_shared<Shard>(dispatcher, loading->workers[p], buffer++);
      }
    }
    if (!want_status) continue;
    Promise<> promise;
    finished.push_back(promise.future());
    outgoing.request = dispatcher->NewNames();
    execute->set_completion_request(outgoing.request);
    outgoing.on_reply = [promise = std::move(promise), device_nanos](absl::StatusOr<cluster::Reply> reply) mutable {
      if (reply.ok()) NoteLonger(*device_nanos, reply->device_nanos);
      promise.Set(ForClient(reply.status()));
    };
  }
  dispatcher->Dispatch(std::move(operation));
  ExecuteResult result{{}, WhenAll(finished), std::move(device_nanos)};
  for (size_t k = 0; k < outputs.size(); ++k) {
    result.outputs.push_back(std::make_shared<Array>(output_specs_[k], std::move(outputs[k])));
  }
  return result;
}

absl::StatusOr<LoadedExecutableRef> ProgramExecutable::OnDevices(DeviceList devices) {
  if (devices.size() != this->devices().size()) {
    return absl::InvalidArgumentError(absl::StrCat("the program ", program().name(), " for ", this->devices().size(),
                                                   " devices cannot run on ", devices.size()));
  }
  std::lock_guard lock(mu_);
  LoadedExecutableRef& executable = elsewhere_[devices];
  if (executable == nullptr) {
    ASSIGN_OR_RETURN(LoadedProgramRef program, loaded_->OnDevices(std::move(devices)));
    ASSIGN_OR_RETURN(executable, MakeLoadedExecutable(std::move(program)));
  }
  return executable;
}

}  // namespace

absl::StatusOr<LoadedExecutableRef> MakeLoadedExecutable(LoadedProgramRef program) {
  ASSIGN_OR_RETURN(std::vector<ArraySpec> specs, OutputSpecs(program->compiled()->program, program->devices()));
  return std::make_shared<ProgramExecutable>(std::move(program), std::move(specs));
}

}  // namespace openpathways::ifrt
