#include "cluster/dispatcher.h"

#include <algorithm>
#include <mutex>

#include "cluster/command_names.h"

namespace openpathways::cluster {
namespace {

// Most deletes go with the next launch, if launches come at all.
constexpr absl::Duration kDeleteDelay = absl::Milliseconds(50);
// Operations on more workers than this are sent by a thread of their own. Fewer are sent before it has woken up.
constexpr size_t kMaxDirectFanOut = 8;

}  // namespace

bool Dispatcher::DependsOnWaiting(const Outgoing& outgoing) const {
  if (waiting_.empty()) return false;
  const worker::Command& command = outgoing.command;
  bool depends = false;
  ForEachUsedName(command, [&](uint64_t name) { depends = depends || made_by_waiting_.contains(name); });
  auto destroys = [&](uint64_t name) { depends = depends || used_by_waiting_.contains(name); };
  if (command.has_delete_buffers() || command.has_unload_executable()) {
    ForEachUsedName(command, destroys);
  } else if (command.has_execute() && outgoing.donates) {
    for (uint64_t argument : command.execute().arguments()) destroys(argument);
  }
  return depends;
}

bool Dispatcher::MustWait(const Operation& operation) const {
  if (std::any_of(operation.needs.begin(), operation.needs.end(),
                  [](const WorkerRef& worker) { return !worker->settled(); })) {
    return true;
  }
  return std::any_of(operation.parts.begin(), operation.parts.end(),
                     [this](const Operation::Part& part) { return DependsOnWaiting(part.outgoing); });
}

void Dispatcher::SetAside(Operation operation) {
  for (const Operation::Part& part : operation.parts) {
    ForEachUsedName(part.outgoing.command, [this](uint64_t name) { used_by_waiting_.insert(name); });
    ForEachMadeName(part.outgoing.command, part.outgoing.num_result_buffers,
                    [this](uint64_t name) { made_by_waiting_.insert(name); });
  }
  waiting_.push_back(std::move(operation));
  any_waiting_.store(true, std::memory_order_release);
}

void Dispatcher::Enter(Operation operation, LostParts& lost, std::vector<WorkerRef>& touched) {
  uint64_t launch = 0;
  for (Operation::Part& part : operation.parts) {
    if (part.outgoing.command.has_execute()) {
      if (launch == 0) launch = ++last_launch_;
      part.outgoing.command.mutable_execute()->set_launch(launch);
    }
    if (part.worker->Append(part.outgoing)) {
      touched.push_back(std::move(part.worker));
    } else {
      lost.push_back(std::move(part));
    }
  }
}

void Dispatcher::Finish(LostParts lost, std::vector<WorkerRef> touched) {
  if (touched.size() > kMaxDirectFanOut) {
    fan_out_.Flush(std::move(touched));
  } else {
    for (const WorkerRef& worker : touched) worker->Flush();
  }
  for (Operation::Part& part : lost) {
    if (part.outgoing.request != 0) part.outgoing.on_reply(part.worker->status());
  }
}

void Dispatcher::Dispatch(Operation operation) {
  LostParts lost;
  std::vector<WorkerRef> touched;
  {
    std::lock_guard lock(mu_);
    if (MustWait(operation)) return SetAside(std::move(operation));
    Enter(std::move(operation), lost, touched);
  }
  Finish(std::move(lost), std::move(touched));
}

void Dispatcher::Send(const WorkerRef& worker, Outgoing outgoing) {
  if (!any_waiting_.load(std::memory_order_acquire)) return worker->Send(std::move(outgoing));
  Operation operation;
  operation.parts.push_back({worker, std::move(outgoing)});
  Dispatch(std::move(operation));
}

void Dispatcher::Delete(const WorkerRef& worker, uint64_t buffer) {
  if (any_waiting_.load(std::memory_order_acquire)) {
    Outgoing outgoing;
    outgoing.command.mutable_delete_buffers()->add_buffers(buffer);
    return Send(worker, std::move(outgoing));
  }
  if (!worker->Delete(buffer)) return;
  bool first = false;
  {
    std::lock_guard lock(deletes_mu_);
    first = have_deletes_.empty();
    have_deletes_.push_back(worker);
  }
  if (first) delayed_deletes_.RunAfter(kDeleteDelay, [this] { FlushDeletes(); });
}

void Dispatcher::FlushDeletes() {
  std::vector<std::weak_ptr<Worker>> workers;
  {
    std::lock_guard lock(deletes_mu_);
    workers.swap(have_deletes_);
  }
  for (const std::weak_ptr<Worker>& worker : workers) {
    if (WorkerRef alive = worker.lock()) alive->FlushDeletes();
  }
}

bool Dispatcher::IsAwaited(const WorkerRef& worker) {
  std::lock_guard lock(mu_);
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Operation& operation) {
    return std::find(operation.needs.begin(), operation.needs.end(), worker) != operation.needs.end();
  });
}

void Dispatcher::OnSettled() {
  LostParts lost;
  std::vector<WorkerRef> touched;
  {
    std::lock_guard lock(mu_);
    std::list<Operation> operations;
    operations.swap(waiting_);
    made_by_waiting_.clear();
    used_by_waiting_.clear();
    for (Operation& operation : operations) {
      // A lost worker's part has its answer already; the others still wait for who is missing.
      auto alive = std::stable_partition(operation.parts.begin(), operation.parts.end(),
                                         [](const Operation::Part& part) { return !part.worker->lost(); });
      std::move(alive, operation.parts.end(), std::back_inserter(lost));
      operation.parts.erase(alive, operation.parts.end());
      if (operation.parts.empty()) continue;
      if (MustWait(operation)) {
        SetAside(std::move(operation));
      } else {
        Enter(std::move(operation), lost, touched);
      }
    }
    any_waiting_.store(!waiting_.empty(), std::memory_order_release);
  }
  Finish(std::move(lost), std::move(touched));
}

}  // namespace openpathways::cluster
