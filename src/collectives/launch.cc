#include "collectives/launch.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace openpathways::collectives {
namespace {

// Copies a payload that came in the header, which the caller owns.
transport::Buffer CopyTail(absl::string_view tail) {
  if (tail.empty()) return transport::Buffer();
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  auto memory = std::make_shared<std::vector<Line>>((tail.size() + 63) / 64);
  std::byte* data = memory->data()->bytes;
  std::memcpy(data, tail.data(), tail.size());
  return transport::Buffer(std::move(memory), data, tail.size());
}

absl::Status CheckArrays(const Instruction& instruction, const JoinArgs& args) {
  if (args.operands.size() != instruction.operands.size() || args.results.size() != instruction.results.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        instruction.name(), ": device ", args.device, " came with ", args.operands.size(), " operands and ",
        args.results.size(), " results instead of ", instruction.operands.size(), " and ", instruction.results.size()));
  }
  return absl::OkStatus();
}

Algorithm::Context MakeContext(const std::shared_ptr<const Instruction>& instruction, const Group* group,
                               const std::vector<JoinArgs>& devices, Link link) {
  Algorithm::Context context{.instruction = instruction, .group = group, .local = {}, .link = link};
  for (const JoinArgs& device : devices) {
    LocalArrays arrays;
    for (const void* operand : device.operands) arrays.operands.push_back(static_cast<const std::byte*>(operand));
    for (void* result : device.results) arrays.results.push_back(static_cast<std::byte*>(result));
    context.local.push_back(std::move(arrays));
  }
  return context;
}

}  // namespace

void Launch::Begin(std::shared_ptr<const Placement> placement) {
  std::lock_guard lock(mu_);
  placement_ = std::move(placement);
}

void Launch::Join(const hlo::CollectiveDescriptor& descriptor, JoinArgs args) {
  absl::Status failure;
  CollectiveRef ready;
  {
    std::lock_guard lock(mu_);
    if (!failure_.ok()) {
      failure = failure_;
    } else if (absl::StatusOr<CollectiveRef> entered = EnterLocked(descriptor, args); entered.ok()) {
      ready = *std::move(entered);
    } else {
      failure = entered.status();
    }
  }
  if (ready != nullptr) Advance(ready, Caller::kDevice);
  if (failure.ok()) return;
  // A device that cannot take part would be waited for by the others.
  Fail(failure, /*tell_others=*/true);
  RunFlat([done = std::move(args.done), failure]() mutable { done(failure); });
}

absl::StatusOr<Launch::CollectiveRef> Launch::EnterLocked(const hlo::CollectiveDescriptor& descriptor, JoinArgs& args) {
  ASSIGN_OR_RETURN(InstructionState * state, FindInstructionLocked(descriptor));
  const Instruction& instruction = *state->instruction;
  const auto place = instruction.places.find(args.device);
  if (place == instruction.places.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(instruction.name(), ": device ", args.device, " is in none of its groups"));
  }
  const Group& group = instruction.groups[place->second.group];
  const Group::Member& member = group.members[place->second.member];
  if (member.worker != group.self) {
    return absl::InvalidArgumentError(
        absl::StrCat(instruction.name(), ": device ", args.device, " does not belong to worker ", runtime_->self));
  }
  RETURN_IF_ERROR(CheckArrays(instruction, args));
  const CollectiveId id{instruction.number, group.index, state->repetitions[args.device]++};
  CollectiveRef collective = FindCollectiveLocked(id);
  if (collective->joined++ == 0) {
    ++pending_;
    collective->instruction = state->instruction;
    collective->group = &group;
    collective->devices.resize(group.local_members().size());
  }
  collective->devices[member.local] = std::move(args);
  return ClaimLocked(*collective) ? collective : nullptr;
}

absl::StatusOr<Launch::InstructionState*> Launch::FindInstructionLocked(const hlo::CollectiveDescriptor& descriptor) {
  InstructionState& state = instructions_[descriptor.instruction()];
  if (state.instruction == nullptr) {
    ASSIGN_OR_RETURN(state.instruction, Instruction::Create(descriptor, *placement_, runtime_->self));
  }
  return &state;
}

Launch::CollectiveRef Launch::FindCollectiveLocked(const CollectiveId& id) {
  CollectiveRef& collective = collectives_[id];
  if (collective == nullptr) {
    collective = std::make_shared<Collective>();
    collective->id = id;
  }
  return collective;
}

bool Launch::ClaimLocked(Collective& collective) {
  if (collective.busy || collective.finished || collective.instruction == nullptr ||
      collective.joined < static_cast<int>(collective.devices.size())) {
    return false;
  }
  collective.busy = true;
  return true;
}

void Launch::Receive(WorkerId from, const Message& message, transport::Buffer payload) {
  if (message.is_abort) {
    Fail(message.abort_status, /*tell_others=*/false);
    return;
  }
  if (payload.empty()) payload = CopyTail(message.tail);
  CollectiveRef ready;
  {
    std::lock_guard lock(mu_);
    if (!failure_.ok() || ended_) return;
    CollectiveRef collective = FindCollectiveLocked(message.collective);
    collective->arrivals.push_back({from, message.step, std::move(payload)});
    if (ClaimLocked(*collective)) ready = std::move(collective);
  }
  if (ready != nullptr) Advance(ready, Caller::kOther);
}

void Launch::Advance(const CollectiveRef& collective, Caller caller) {
  while (AdvanceOnce(collective, caller)) {
  }
}

bool Launch::AdvanceOnce(const CollectiveRef& collective, Caller caller) {
  std::vector<Arrival> arrivals;
  absl::Status failure;
  {
    std::lock_guard lock(mu_);
    failure = failure_;
    arrivals.swap(collective->arrivals);
  }
  if (!failure.ok()) {
    Finish(*collective, failure);
    return false;
  }
  const absl::Status handed_in = HandIn(*collective, std::move(arrivals));
  absl::StatusOr<Step> step = handed_in.ok() ? collective->algorithm->Next() : handed_in;
  if (!step.ok()) {
    Fail(step.status(), /*tell_others=*/true);
    return true;  // to finish with whichever failure came first
  }
  switch (step->kind) {
    case Step::Kind::kDone:
      Finish(*collective, absl::OkStatus());
      return false;
    case Step::Kind::kWait: {
      std::lock_guard lock(mu_);
      if (!failure_.ok() || !collective->arrivals.empty()) return true;
      collective->busy = false;
      return false;
    }
    case Step::Kind::kWork:
      break;
  }
  Work work = std::move(step->work);
  if (work.bytes <= (caller == Caller::kDevice ? kDeviceWorkBytes : kInlineWorkBytes)) {
    work.RunInline();
    return true;
  }
  work.finish = [self = shared_from_this(), collective, finish = std::move(work.finish)]() mutable {
    if (finish) finish();
    self->Advance(collective, Caller::kOther);
  };
  if (caller == Caller::kDevice) {
    runtime_->pool.RunWithCaller(std::move(work));
  } else {
    runtime_->pool.Run(std::move(work));
  }
  return false;
}

absl::Status Launch::HandIn(Collective& collective, std::vector<Arrival> arrivals) {
  const Group& group = *collective.group;
  if (collective.algorithm == nullptr) {
    collective.algorithm = Algorithm::Create(
        MakeContext(collective.instruction, &group, collective.devices, Link(runtime_->peers, key_, collective.id)));
  }
  for (Arrival& arrival : arrivals) {
    int worker = 0;
    while (worker < group.num_workers() && group.workers[worker] != arrival.from) ++worker;
    if (worker == group.num_workers()) {
      return absl::InternalError(absl::StrCat("worker ", arrival.from, " sent a message for ",
                                              collective.instruction->name(), " but has no part in it"));
    }
    RETURN_IF_ERROR(collective.algorithm->Receive(worker, arrival.step, std::move(arrival.payload)));
  }
  return absl::OkStatus();
}

Launch::Callbacks Launch::RemoveLocked(Collective& collective) {
  collective.finished = true;
  Callbacks callbacks;
  for (JoinArgs& device : collective.devices) {
    if (device.done) callbacks.push_back(std::move(device.done));
  }
  if (collective.joined > 0) --pending_;
  collectives_.erase(collective.id);
  return callbacks;
}

void Launch::Finish(Collective& collective, const absl::Status& status) {
  // Payloads go back first: what `done` starts may need the memory.
  collective.algorithm.reset();
  Callbacks callbacks;
  {
    std::lock_guard lock(mu_);
    callbacks = RemoveLocked(collective);
  }
  RunCallbacks(std::move(callbacks), status);
  EndIfDone();
}

void Launch::RunCallbacks(Callbacks callbacks, const absl::Status& status) {
  for (auto& callback : callbacks) {
    RunFlat([callback = std::move(callback), status]() mutable { callback(status); });
  }
}

void Launch::Fail(const absl::Status& status, bool tell_others, WorkerId lost_peer) {
  std::shared_ptr<const Placement> placement;
  std::vector<CollectiveRef> idle;
  Callbacks callbacks;
  {
    std::lock_guard lock(mu_);
    if (!failure_.ok() || ended_) return;
    failure_ = status;
    placement = placement_;
    for (const auto& [id, collective] : collectives_) {
      // Work in progress reads operands and writes results: their owner hears when it is over.
      if (!collective->busy) idle.push_back(collective);
    }
    for (const CollectiveRef& collective : idle) {
      for (auto& callback : RemoveLocked(*collective)) callbacks.push_back(std::move(callback));
    }
  }
  idle.clear();  // gives payloads back
  if (tell_others && placement != nullptr) SendAbort(*placement, status, lost_peer);
  RunCallbacks(std::move(callbacks), status);
  EndIfDone();
}

void Launch::SendAbort(const Placement& placement, const absl::Status& status, WorkerId lost_peer) {
  absl::flat_hash_set<WorkerId> told = {runtime_->self, lost_peer};
  for (WorkerId worker : placement) {
    if (told.insert(worker).second) runtime_->peers->Send(worker, EncodeAbort(key_, status), transport::Buffer());
  }
}

void Launch::Release() {
  {
    std::lock_guard lock(mu_);
    released_ = true;
  }
  EndIfDone();
}

void Launch::EndIfDone() {
  // What is left are messages for collectives that this worker never reached. Freed without the lock.
  absl::flat_hash_map<CollectiveId, CollectiveRef> unreached;
  {
    std::lock_guard lock(mu_);
    if (!released_ || ended_ || pending_ > 0) return;
    ended_ = true;
    unreached.swap(collectives_);
  }
  on_end_();
}

}  // namespace openpathways::collectives
