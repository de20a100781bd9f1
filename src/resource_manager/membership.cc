#include "resource_manager/membership.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status.h"

namespace openpathways::resource_manager {
namespace {

using topology::SliceTopology;

std::string Describe(const Slot& slot) {
  return absl::StrCat("slice ", slot.slice(), " host ", slot.host(), " (worker ", slot.worker_id(), ", pid ",
                      slot.pid(), " on ", slot.hostname(), ", ", slot.address(), ")");
}

absl::Status Forgotten(uint64_t worker_id) {
  return absl::NotFoundError(absl::StrCat("worker ", worker_id, " was declared lost; register again"));
}

// By a live worker.
bool IsHeld(const Slot& slot) { return slot.state() == READY || slot.state() == JOINING; }

absl::Status WrongDevices(const Slot& slot, const SliceTopology& slice, int num_devices) {
  return absl::InvalidArgumentError(absl::StrCat("the worker offers ", num_devices, " devices, but a host of slice ",
                                                 slot.slice(), " (", slice.instance_type(), ") has ",
                                                 slot.num_devices()));
}

}  // namespace

Membership::Membership(std::vector<SliceTopology> slices) : slices_(std::move(slices)) {
  absl::MutexLock lock(&mu_);
  incarnation_ = absl::Uniform<uint64_t>(absl::IntervalClosed, random_, 1, std::numeric_limits<uint64_t>::max());
  for (size_t s = 0; s < slices_.size(); ++s) {
    std::vector<SlotRecord>& hosts = slots_.emplace_back(slices_[s].num_hosts());
    for (size_t h = 0; h < hosts.size(); ++h) {
      hosts[h].slot.set_slice(static_cast<int>(s));
      hosts[h].slot.set_host(static_cast<int>(h));
      hosts[h].slot.set_state(MISSING);
      hosts[h].slot.set_num_devices(slices_[s].devices_per_host());
    }
  }
}

absl::StatusOr<Membership::SlotRecord*> Membership::FindSlot(const WorkerHello& hello) {
  if (hello.slice() == -1) {
    for (std::vector<SlotRecord>& hosts : slots_) {
      for (SlotRecord& record : hosts) {
        const bool wanted = (hello.host() < 0 || hello.host() == record.slot.host()) &&
                            (hello.num_devices() == 0 || hello.num_devices() == record.slot.num_devices());
        if (wanted && !IsHeld(record.slot)) return &record;
      }
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "no slot is free for a worker of ", hello.host() < 0 ? "any host" : absl::StrCat("host ", hello.host()),
        hello.num_devices() == 0 ? "" : absl::StrCat(" with ", hello.num_devices(), " devices"), ": ", live_.size(),
        " workers are there"));
  }
  const int num_slices = static_cast<int>(slices_.size());
  if (hello.slice() < 0 || hello.slice() >= num_slices) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", hello.slice(),
                                                   " does not exist: this cluster has slices 0 to ", num_slices - 1,
                                                   " (--instance_count=", num_slices, ")"));
  }
  const SliceTopology& slice = slices_[hello.slice()];
  if (hello.host() < 0 || hello.host() >= slice.num_hosts()) {
    return absl::InvalidArgumentError(absl::StrCat("host ", hello.host(), " does not exist: slice ", hello.slice(),
                                                   " (", slice.instance_type(), ") has hosts 0 to ",
                                                   slice.num_hosts() - 1));
  }
  SlotRecord& record = slots_[hello.slice()][hello.host()];
  if (hello.num_devices() != 0 && hello.num_devices() != record.slot.num_devices()) {
    return WrongDevices(record.slot, slice, hello.num_devices());
  }
  return &record;
}

Membership::SlotRecord* Membership::FindLive(uint64_t worker_id) {
  auto it = live_.find(worker_id);
  return it == live_.end() ? nullptr : it->second;
}

uint64_t Membership::NewWorkerId(uint64_t offered) {
  // An id that this process never granted comes from the life before a restart: its worker goes on as it was.
  if (offered != 0 && used_ids_.insert(offered).second) return offered;
  while (true) {
    const auto id = absl::Uniform<uint64_t>(absl::IntervalClosed, random_, 1, std::numeric_limits<uint64_t>::max());
    if (used_ids_.insert(id).second) return id;
  }
}

absl::StatusOr<WorkerAccepted> Membership::Join(const WorkerHello& hello, const std::string& peer_host,
                                                absl::Time now) {
  absl::StatusOr<WorkerAccepted> accepted;
  {
    absl::MutexLock lock(&mu_);
    // A worker that comes back before its old stream was seen to break. What it holds may have missed commands: lost.
    if (SlotRecord* old = FindLive(hello.previous_worker_id())) MarkLost(*old, "the worker registered again", now);
    accepted = TakeSlot(hello, peer_host, now);
  }
  NotifyWatchers();
  return accepted;
}

absl::StatusOr<WorkerAccepted> Membership::TakeSlot(const WorkerHello& hello, const std::string& peer_host,
                                                    absl::Time now) {
  ASSIGN_OR_RETURN(SlotRecord * record, FindSlot(hello));
  Slot& slot = record->slot;
  if (IsHeld(slot)) {
    return absl::AlreadyExistsError(
        absl::StrCat(Describe(slot), " is alive; it must end before another worker can take its place"));
  }
  record->before = slot;
  slot.set_state(JOINING);
  slot.set_worker_id(NewWorkerId(hello.previous_worker_id()));
  slot.set_address(hello.address().empty() ? absl::StrCat(peer_host, ":", hello.server_port()) : hello.address());
  slot.set_pid(hello.pid());
  slot.set_hostname(hello.hostname());
  slot.clear_platform();
  slot.clear_platform_version();
  slot.clear_lost_reason();
  slot.clear_lost_time_ms();
  slot.clear_ready_time_ms();
  slot.clear_stats();
  record->last_heard = now;
  live_[slot.worker_id()] = record;
  spdlog::info("{} has come", Describe(slot));
  Changed();

  WorkerAccepted accepted;
  accepted.set_worker_id(slot.worker_id());
  accepted.set_slice(slot.slice());
  accepted.set_host(slot.host());
  accepted.set_instance_type(slices_[slot.slice()].instance_type());
  accepted.set_num_slices(static_cast<int>(slices_.size()));
  accepted.set_num_devices(slot.num_devices());
  accepted.set_address(slot.address());
  accepted.set_rm_incarnation(incarnation_);
  return accepted;
}

absl::Status Membership::Ready(uint64_t worker_id, const WorkerReady& ready, absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    SlotRecord* record = FindLive(worker_id);
    if (record == nullptr) return Forgotten(worker_id);
    Slot& slot = record->slot;
    if (ready.num_devices() != slot.num_devices()) {
      return WrongDevices(slot, slices_[slot.slice()], ready.num_devices());
    }
    slot.set_state(READY);
    slot.set_platform(ready.platform());
    slot.set_platform_version(ready.platform_version());
    slot.set_ready_time_ms(absl::ToUnixMillis(now));
    record->last_heard = now;
    spdlog::info("{} is ready: {} devices of platform {} ({})", Describe(slot), slot.num_devices(), slot.platform(),
                 slot.platform_version());
    Changed();
  }
  NotifyWatchers();
  return absl::OkStatus();
}

absl::Status Membership::Heartbeat(uint64_t worker_id, const WorkerHeartbeat& stats, absl::Time now) {
  absl::MutexLock lock(&mu_);
  SlotRecord* record = FindLive(worker_id);
  if (record == nullptr) return Forgotten(worker_id);
  record->last_heard = now;
  *record->slot.mutable_stats() = stats;
  return absl::OkStatus();
}

void Membership::Leave(uint64_t worker_id, const std::string& reason, absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    SlotRecord* record = FindLive(worker_id);
    if (record == nullptr) return;
    MarkLost(*record, reason, now);
  }
  NotifyWatchers();
}

void Membership::ExpireSilent(absl::Duration silence, absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    std::vector<SlotRecord*> silent;
    for (const auto& [id, record] : live_) {
      if (now - record->last_heard > silence) silent.push_back(record);
    }
    if (silent.empty()) return;
    for (SlotRecord* record : silent) {
      MarkLost(*record, absl::StrCat("no heartbeat for ", absl::FormatDuration(silence)), now);
    }
  }
  NotifyWatchers();
}

void Membership::ForgiveSilence(absl::Time now) {
  absl::MutexLock lock(&mu_);
  for (const auto& [id, record] : live_) record->last_heard = now;
}

void Membership::MarkLost(SlotRecord& record, const std::string& reason, absl::Time now) {
  spdlog::warn("{} is lost{}: {}", Describe(record.slot), record.slot.state() == JOINING ? " before it was ready" : "",
               reason);
  live_.erase(record.slot.worker_id());
  if (record.slot.state() == JOINING) {
    // Nobody has used it: nothing is lost.
    record.slot = std::move(record.before);
    return Changed();
  }
  record.slot.set_state(LOST);
  record.slot.set_lost_reason(reason);
  record.slot.set_lost_time_ms(absl::ToUnixMillis(now));
  ++workers_lost_;
  Changed();
}

int Membership::CountReadySlices() const {
  int ready = 0;
  for (const std::vector<SlotRecord>& hosts : slots_) {
    bool all = true;
    for (const SlotRecord& record : hosts) all = all && record.slot.state() == READY;
    ready += all;
  }
  return ready;
}

void Membership::Changed() {
  ++version_;
  const int ready = CountReadySlices();
  if (ready == ready_slices_) return;
  ready_slices_ = ready;
  spdlog::info("*** {}/{} Pathways Slices Now Ready ***", ready, slices_.size());
}

ClusterSnapshot Membership::Snapshot(bool with_stats) const {
  absl::MutexLock lock(&mu_);
  ClusterSnapshot snapshot;
  snapshot.set_rm_incarnation(incarnation_);
  snapshot.set_version(version_);
  snapshot.set_ready_slices(ready_slices_);
  for (size_t s = 0; s < slices_.size(); ++s) {
    snapshot.add_instance_type(slices_[s].instance_type());
    for (const SlotRecord& record : slots_[s]) {
      Slot* slot = snapshot.add_slots();
      *slot = record.slot;
      if (!with_stats) slot->clear_stats();
    }
  }
  return snapshot;
}

uint64_t Membership::version() const {
  absl::MutexLock lock(&mu_);
  return version_;
}

int64_t Membership::workers_lost() const {
  absl::MutexLock lock(&mu_);
  return workers_lost_;
}

int64_t Membership::Watch(std::function<void()> on_change) {
  absl::MutexLock lock(&watch_mu_);
  watchers_[next_watch_] = std::move(on_change);
  return next_watch_++;
}

void Membership::Unwatch(int64_t watch) {
  absl::MutexLock lock(&watch_mu_);
  watchers_.erase(watch);
}

void Membership::NotifyWatchers() {
  absl::MutexLock lock(&watch_mu_);
  for (const auto& [id, on_change] : watchers_) on_change();
}

}  // namespace openpathways::resource_manager
