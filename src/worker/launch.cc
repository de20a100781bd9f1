#include "worker/launch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/steady_clock.h"
#include "hlo/collective_call.h"
#include "worker/client_pool.h"

namespace openpathways::worker {
namespace {

// Launches that have been given to the devices and have not ended. What they need is allocated when they run. Plugins
// that run launches in the background are not filled up: the CPU plugin, for one, would let Execute wait at 32.
constexpr int kMaxQueued = 1024;
constexpr int kMaxInBackground = 24;

// The sanitizers do not know of stacks that change.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kHaveFibers = false;
#else
constexpr bool kHaveFibers = true;
#endif

}  // namespace

Launch::Launch(LaunchRequest request, collectives::LaunchKey key, std::shared_ptr<collectives::Engine> engine)
    : request_(std::move(request)),
      num_devices_(request_.program->local_devices().size()),
      key_(key),
      engine_(std::move(engine)),
      unfinished_(static_cast<int>(num_devices_)) {}

void Launch::Begin(std::function<void()> done) {
  done_ = std::move(done);
  engine_launch_ = engine_->BeginLaunch(key_, request_.program->placement());
}

void Launch::Run(const ProgramPart& part) {
  const int64_t start = SteadyNanos();
  absl::StatusOr<pjrt::ExecuteResult> result = Execute(part);
  ran_nanos_.fetch_add(SteadyNanos() - start, std::memory_order_relaxed);
  ReleaseArguments(part);  // from here on PJRT holds what it needs
  if (!result.ok()) {
    Fail(result.status());
    FailResults(part, result.status());
    DevicesDone(static_cast<int>(part.executable->local_devices().size()));
    return;
  }
  BindResults(part, std::move(result->outputs));
  for (const Future<>& device_done : result->done) {
    device_done.OnReady([self = shared_from_this(), start](const absl::Status& status) {
      self->NoteDuration(SteadyNanos() - start);
      if (!status.ok()) self->Fail(status);
      self->DevicesDone(1);
    });
  }
}

void Launch::FailAll(const absl::Status& status) {
  Fail(status);
  request_.arguments.clear();
  for (NamedBufferRef& result : request_.results) result->Set(status);
  request_.results.clear();
  DevicesDone(static_cast<int>(num_devices_));
}

absl::StatusOr<pjrt::ExecuteResult> Launch::Execute(const ProgramPart& part) {
  if (failed_.load(std::memory_order_acquire)) return first_error();  // another device's
  RETURN_IF_ERROR(CheckCounts(part));
  ASSIGN_OR_RETURN(const std::vector<ValueRef> values, ArgumentValues(part));

  const size_t num_devices = part.executable->local_devices().size();
  const size_t num_parameters = values.size() / num_devices;
  pjrt::ExecuteArgs args;
  args.arguments.resize(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    args.arguments[i].reserve(num_parameters);
    for (size_t j = 0; j < num_parameters; ++j) {
      args.arguments[i].push_back(values[j * num_devices + i]->buffer.get());
    }
  }
  args.non_donatable = NonDonatable(part, values);
  args.launch_id = static_cast<int64_t>(key_.launch);
  args.user_data = this;
  args.waited_nanos = &waited_nanos_;
  return part.executable->Execute(args);
}

absl::Status Launch::CheckCounts(const ProgramPart& part) const {
  const pjrt::ExecutableInfo& info = part.executable->info();
  if (request_.arguments.size() % num_devices_ != 0) {
    return absl::InvalidArgumentError(absl::StrCat("program ", info.name, " got ", request_.arguments.size(),
                                                   " arguments for ", num_devices_, " devices of this worker"));
  }
  const size_t num_results = request_.results.size() / num_devices_;
  if (num_results != info.output_types.size()) {
    return absl::InternalError(absl::StrCat("program ", info.name, " has ", info.output_types.size(),
                                            " results, but the controller asked for ", num_results));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueRef>> Launch::ArgumentValues(const ProgramPart& part) const {
  const size_t num_devices = part.executable->local_devices().size();
  std::vector<ValueRef> values;
  values.reserve(request_.arguments.size() / num_devices_ * num_devices);
  for (size_t first = part.first_device; first < request_.arguments.size(); first += num_devices_) {
    for (size_t i = first; i < first + num_devices; ++i) {
      const Future<ValueRef>& value = request_.arguments[i]->value();
      if (!value.IsReady()) return absl::InternalError("an argument was made on another device than its user's");
      RETURN_IF_ERROR(value.Await().status());
      values.push_back(*value.Await());
      if (values.back()->buffer == nullptr) {
        return absl::InvalidArgumentError("programs take no arrays of strings and of types that the devices lack");
      }
    }
  }
  return values;
}

std::vector<int64_t> Launch::NonDonatable(const ProgramPart& part, const std::vector<ValueRef>& values) const {
  const size_t num_devices = part.executable->local_devices().size();
  std::vector<bool> survives(values.size() / num_devices, false);
  for (int64_t parameter : request_.non_donatable) {
    if (parameter >= 0 && parameter < static_cast<int64_t>(survives.size())) survives[parameter] = true;
  }
  for (size_t k = 0; k < values.size(); ++k) {
    const size_t parameter = k / num_devices;
    Value& value = *values[k];
    const NamedBuffer& name = *request_.arguments[parameter * num_devices_ + part.first_device + k % num_devices];
    if (value.shared || name.pinned()) survives[parameter] = true;
    if (value.last_launch == key_.launch) {
      // An argument twice over: neither parameter may take its memory.
      survives[value.last_argument / num_devices] = true;
      survives[parameter] = true;
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

void Launch::ReleaseArguments(const ProgramPart& part) {
  const size_t num_devices = part.executable->local_devices().size();
  for (size_t first = part.first_device; first < request_.arguments.size(); first += num_devices_) {
    for (size_t i = first; i < std::min(first + num_devices, request_.arguments.size()); ++i) {
      request_.arguments[i].reset();
    }
  }
}

void Launch::BindResults(const ProgramPart& part, std::vector<std::vector<std::unique_ptr<pjrt::Buffer>>> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t k = 0; k < outputs[i].size(); ++k) {
      NamedBufferRef result = std::move(request_.results[k * num_devices_ + part.first_device + i]);
      result->SetBuffer(std::move(outputs[i][k]));
    }
  }
}

void Launch::FailResults(const ProgramPart& part, const absl::Status& status) {
  const size_t num_devices = part.executable->local_devices().size();
  for (size_t first = part.first_device; first < request_.results.size(); first += num_devices_) {
    for (size_t i = first; i < std::min(first + num_devices, request_.results.size()); ++i) {
      NamedBufferRef result = std::move(request_.results[i]);
      result->Set(status);
    }
  }
}

absl::Status Launch::first_error() const {
  absl::MutexLock lock(&mu_);
  return first_error_;
}

void Launch::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    first_error_.Update(status);
  }
  failed_.store(true, std::memory_order_release);
  engine_->Abort(engine_launch_, status);
}

void Launch::NoteDuration(int64_t nanos) {
  int64_t longest = longest_nanos_.load(std::memory_order_relaxed);
  while (nanos > longest && !longest_nanos_.compare_exchange_weak(longest, nanos, std::memory_order_relaxed)) {
  }
}

void Launch::DevicesDone(int count) {
  if (unfinished_.fetch_sub(count, std::memory_order_acq_rel) != count) return;
  engine_launch_.reset();
  request_.program->AddDuration((ran_nanos_.load() - waited_nanos_.load()) / static_cast<int64_t>(num_devices_));
  if (request_.on_done) request_.on_done(first_error(), longest_nanos_.load());
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

LaunchQueue::LaunchQueue(uint64_t controller, const pjrt::Client& client, std::shared_ptr<collectives::Engine> engine,
                         std::shared_ptr<SerialExecutor> executor, std::shared_ptr<Stats> stats)
    : controller_(controller),
      engine_(std::move(engine)),
      stats_(std::move(stats)),
      link_(std::make_shared<Link>()),
      per_device_(LaunchesPerDevice(client)) {
  link_->executor = std::move(executor);
  link_->queue = this;
  const size_t num_queues = per_device_ ? client.local_devices().size() : 1;
  for (size_t i = 0; i < num_queues; ++i) devices_.push_back(std::make_unique<DeviceQueue>(absl::StrCat("device ", i)));
  if (per_device_ && kHaveFibers) fibers_ = std::make_unique<DeviceFibers>("devices", num_queues);
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
  AwaitResolved(request.program->parts(), waiting);
  for (const NamedBufferRef& argument : request.arguments) {
    // The launches of a device run in order, so the one that makes it is before this one.
    if (!argument->made_by_launch()) AwaitResolved(argument->value(), waiting);
  }
  const collectives::LaunchKey key{controller_, request.launch};
  waiting->launch = std::make_shared<Launch>(std::move(request), key, engine_);
  waiting_.push_back(std::move(waiting));
  StartReady();
}

// False if the launch has to wait; it is tried again when fewer are running.
bool LaunchQueue::MayStart(const Program& program) {
  const bool wants_fibers = fibers_ != nullptr && program.may_run_as_fibers();
  if (wants_fibers != on_fibers_) {
    // A device's launches must not overtake each other on their way to different threads.
    if (StallAbove(0)) return false;
    on_fibers_ = wants_fibers;
  }
  if (link_->running.load() < (per_device_ ? kMaxQueued : kMaxInBackground)) return true;
  // Not one by one: each time costs a wake-up of the command thread.
  return !StallAbove(per_device_ ? kMaxQueued / 2 : kMaxInBackground - 1);
}

// True if more than `running` launches are running. Then StartReady is called when that has changed.
bool LaunchQueue::StallAbove(int running) {
  if (link_->running.load() <= running) return false;
  link_->resume_at.store(running);
  link_->stalled.store(true);
  // They may have finished in between, without having seen the mark.
  return link_->running.load() > running || !link_->stalled.exchange(false);
}

void LaunchQueue::StartReady() {
  while (!waiting_.empty() && waiting_.front()->missing == 0 &&
         MayStart(*waiting_.front()->launch->request().program)) {
    std::shared_ptr<Launch> launch = std::move(waiting_.front()->launch);
    waiting_.pop_front();
    const bool alone = link_->running.fetch_add(1) == 0;
    stats_->launches.fetch_add(1, std::memory_order_relaxed);
    launch->Begin([link = link_] { OnLaunchDone(link); });
    Start(launch, alone);
  }
}

void LaunchQueue::Start(const std::shared_ptr<Launch>& launch, bool alone) {
  const Program& program = *launch->request().program;
  const absl::StatusOr<ProgramPartsRef>& loaded = program.parts().Await();  // is there
  if (!loaded.ok()) return launch->FailAll(loaded.status());
  // A short program is over before another thread has woken up.
  const bool here = alone && per_device_ && program.may_run_anywhere();
  for (const ProgramPart& part : **loaded) {
    if (here) {
      launch->Run(part);
      continue;
    }
    auto run = [launch, parts = *loaded, &part] { launch->Run(part); };
    if (on_fibers_) {
      fibers_->Post(part.queue, std::move(run));
    } else {
      devices_[part.queue]->Post(std::move(run));
    }
  }
}

void LaunchQueue::OnLaunchDone(const std::shared_ptr<Link>& link) {
  if (link->running.fetch_sub(1) - 1 > link->resume_at.load() || !link->stalled.exchange(false)) return;
  link->executor->Post([link] {
    if (link->queue != nullptr) link->queue->StartReady();
  });
}

}  // namespace openpathways::worker
