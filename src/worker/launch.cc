#include "worker/launch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/collective_call.h"

namespace openpathways::worker {

Launch::Launch(LaunchRequest request, collectives::LaunchKey key, std::shared_ptr<collectives::Engine> engine)
    : request_(std::move(request)), key_(key), engine_(std::move(engine)) {}

void Launch::Start(std::function<void()> done) {
  done_ = std::move(done);
  engine_launch_ = engine_->BeginLaunch(key_, request_.program->placement());
  absl::StatusOr<pjrt::ExecuteResult> result = Execute();
  request_.arguments.clear();  // from here on PJRT holds what it needs
  if (!result.ok()) {
    Fail(result.status());
    Finish();
    return;
  }
  BindResults(std::move(result->outputs));
  unfinished_.store(static_cast<int>(result->done.size()));
  for (const Future<>& device_done : result->done) {
    device_done.OnReady([self = shared_from_this()](const absl::Status& status) { self->DeviceDone(status); });
  }
}

absl::StatusOr<pjrt::ExecuteResult> Launch::Execute() {
  RETURN_IF_ERROR(request_.program->executable().Await().status());
  pjrt::LoadedExecutable& executable = **request_.program->executable().Await();
  RETURN_IF_ERROR(CheckCounts(executable));
  ASSIGN_OR_RETURN(const std::vector<ValueRef> values, ArgumentValues());

  const size_t num_devices = executable.local_devices().size();
  const size_t num_parameters = values.size() / num_devices;
  pjrt::ExecuteArgs args;
  args.arguments.resize(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    args.arguments[i].reserve(num_parameters);
    for (size_t j = 0; j < num_parameters; ++j) {
      args.arguments[i].push_back(values[j * num_devices + i]->buffer.get());
    }
  }
  args.non_donatable = NonDonatable(values);
  args.launch_id = static_cast<int64_t>(key_.launch);
  args.user_data = this;
  return executable.Execute(args);
}

absl::Status Launch::CheckCounts(const pjrt::LoadedExecutable& executable) const {
  const size_t num_devices = executable.local_devices().size();
  if (request_.arguments.size() % num_devices != 0) {
    return absl::InvalidArgumentError(absl::StrCat("program ", executable.info().name, " got ",
                                                   request_.arguments.size(), " arguments for ", num_devices,
                                                   " devices of this worker"));
  }
  const size_t num_results = request_.results.size() / num_devices;
  if (num_results != executable.info().output_types.size()) {
    return absl::InternalError(absl::StrCat("program ", executable.info().name, " has ",
                                            executable.info().output_types.size(),
                                            " results, but the controller asked for ", num_results));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueRef>> Launch::ArgumentValues() const {
  std::vector<ValueRef> values;
  values.reserve(request_.arguments.size());
  for (const NamedBufferRef& argument : request_.arguments) {
    const absl::StatusOr<ValueRef>& value = argument->value().Await();
    RETURN_IF_ERROR(value.status());
    values.push_back(*value);
  }
  return values;
}

std::vector<int64_t> Launch::NonDonatable(const std::vector<ValueRef>& values) const {
  const size_t num_devices = request_.program->local_devices().size();
  std::vector<bool> survives(values.size() / num_devices, false);
  for (int64_t parameter : request_.non_donatable) {
    if (parameter >= 0 && parameter < static_cast<int64_t>(survives.size())) survives[parameter] = true;
  }
  for (size_t k = 0; k < values.size(); ++k) {
    Value& value = *values[k];
    if (value.shared || request_.arguments[k]->pinned()) survives[k / num_devices] = true;
    if (value.last_launch == key_.launch) {
      // An argument twice over: neither parameter may take its memory.
      survives[value.last_argument / num_devices] = true;
      survives[k / num_devices] = true;
    }
    value.last_launch = key_.launch;
    value.last_argument = k;
  }
  std::vector<int64_t> parameters;
  for (size_t parameter = 0; parameter < survives.size(); ++parameter) {
    if (survives[parameter]) parameters.push_back(static_cast<int64_t>(parameter));
  }
  return parameters;
}

void Launch::BindResults(std::vector<std::vector<std::unique_ptr<pjrt::Buffer>>> outputs) {
  const size_t num_devices = outputs.size();
  for (size_t i = 0; i < num_devices; ++i) {
    for (size_t k = 0; k < outputs[i].size(); ++k) {
      request_.results[k * num_devices + i]->SetBuffer(std::move(outputs[i][k]));
    }
  }
  request_.results.clear();
}

void Launch::Fail(const absl::Status& status) {
  for (const NamedBufferRef& result : request_.results) result->Set(status);
  request_.results.clear();
  {
    absl::MutexLock lock(&mu_);
    first_error_.Update(status);
  }
  engine_->Abort(engine_launch_, status);
}

void Launch::DeviceDone(const absl::Status& status) {
  if (!status.ok()) Fail(status);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

void Launch::Finish() {
  engine_launch_.reset();
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    status = first_error_;
  }
  if (request_.on_done) request_.on_done(status);
  done_();
}

void HandleCollective(pjrt::FfiCall call) {
  auto* launch = static_cast<Launch*>(call.user_data());
  if (launch == nullptr) {
    call.Finish(absl::FailedPreconditionError("a collective was reached outside of a launch of a worker"));
    return;
  }
  launch->JoinCollective(std::move(call));
}

void Launch::JoinCollective(pjrt::FfiCall call) {
  auto args = std::make_unique<collectives::JoinArgs>();
  auto descriptor = ReadCollective(call, *args);
  if (!descriptor.ok()) return call.Finish(descriptor.status());
  args->done = [call = std::move(call)](absl::Status status) mutable { call.Finish(status); };
  engine_->Join(engine_launch_, **descriptor, std::move(*args));
}

absl::StatusOr<const hlo::CollectiveDescriptor*> Launch::ReadCollective(const pjrt::FfiCall& call,
                                                                        collectives::JoinArgs& args) const {
  ASSIGN_OR_RETURN(absl::string_view attribute, call.StringAttribute(hlo::kCollectiveAttribute));
  ASSIGN_OR_RETURN(const hlo::CollectiveDescriptor* descriptor, request_.program->Descriptor(attribute));
  ASSIGN_OR_RETURN(const int64_t num_partitions, call.IntAttribute(hlo::kNumPartitionsAttribute));
  const size_t num_operands = descriptor->operands_size();
  const size_t num_results = descriptor->results_size();
  if (call.operands().size() != num_operands + hlo::kCollectiveExtraOperands || call.results().size() < num_results) {
    return absl::InternalError(absl::StrCat("collective ", descriptor->instruction(), " was called with ",
                                            call.operands().size(), " operands and ", call.results().size(),
                                            " results, but is described with ", num_operands, " and ", num_results));
  }
  for (size_t i = 0; i < num_operands; ++i) args.operands.push_back(call.operands()[i].data);
  for (size_t i = 0; i < num_results; ++i) args.results.push_back(call.results()[i].data);
  args.device =
      hlo::LogicalDevice(*static_cast<const uint32_t*>(call.operands()[num_operands].data),
                         *static_cast<const uint32_t*>(call.operands()[num_operands + 1].data), num_partitions);
  return descriptor;
}

LaunchQueue::LaunchQueue(uint64_t controller, std::shared_ptr<collectives::Engine> engine,
                         std::shared_ptr<SerialExecutor> executor, std::shared_ptr<Stats> stats)
    : controller_(controller), engine_(std::move(engine)), stats_(std::move(stats)), link_(std::make_shared<Link>()) {
  link_->executor = std::move(executor);
  link_->queue = this;
}

LaunchQueue::~LaunchQueue() { link_->queue = nullptr; }

template <typename T>
void LaunchQueue::AwaitResolved(const Future<T>& future, const std::shared_ptr<Waiting>& waiting) {
  if (future.IsReady()) return;
  ++waiting->missing;
  future.OnReady([link = link_, weak = std::weak_ptr<Waiting>(waiting)](const auto&) {
    link->executor->Post([link, weak] {
      std::shared_ptr<Waiting> waiting = weak.lock();
      if (link->queue == nullptr || waiting == nullptr) return;
      --waiting->missing;
      link->queue->StartReady();
    });
  });
}

void LaunchQueue::Add(LaunchRequest request) {
  auto waiting = std::make_shared<Waiting>();
  AwaitResolved(request.program->executable(), waiting);
  for (const NamedBufferRef& argument : request.arguments) AwaitResolved(argument->value(), waiting);
  const collectives::LaunchKey key{controller_, request.launch};
  waiting->launch = std::make_shared<Launch>(std::move(request), key, engine_);
  waiting_.push_back(std::move(waiting));
  StartReady();
}

bool LaunchQueue::MayStart() {
  if (link_->running.load() < kMaxRunning) return true;
  link_->stalled.store(true);
  // One may have finished in between, without having seen the mark.
  return link_->running.load() < kMaxRunning && link_->stalled.exchange(false);
}

void LaunchQueue::StartReady() {
  while (!waiting_.empty() && waiting_.front()->missing == 0 && MayStart()) {
    std::shared_ptr<Launch> launch = std::move(waiting_.front()->launch);
    waiting_.pop_front();
    link_->running.fetch_add(1);
    stats_->launches.fetch_add(1, std::memory_order_relaxed);
    launch->Start([link = link_] { OnLaunchDone(link); });
  }
}

void LaunchQueue::OnLaunchDone(const std::shared_ptr<Link>& link) {
  link->running.fetch_sub(1);
  if (!link->stalled.exchange(false)) return;
  link->executor->Post([link] {
    if (link->queue != nullptr) link->queue->StartReady();
  });
}

}  // namespace openpathways::worker
