#include "worker/incoming_transfers.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace openpathways::worker {

void IncomingTransfers::AddController(uint64_t controller) {
  absl::MutexLock lock(&mu_);
  dropped_controllers_.erase(controller);
}

void IncomingTransfers::DropController(uint64_t controller) {
  std::vector<Promise<transport::Buffer>> cancelled;
  std::vector<std::unique_ptr<Arrival>> freed;
  {
    absl::MutexLock lock(&mu_);
    dropped_controllers_.insert(controller);
    for (auto it = expected_.begin(); it != expected_.end();) {
      auto entry = it++;
      if (entry->first.first != controller) continue;
      cancelled.push_back(std::move(entry->second.promise));
      expected_.erase(entry);
    }
    for (auto it = arrived_.begin(); it != arrived_.end();) {
      auto entry = it++;
      if (entry->first.first != controller) continue;
      freed.push_back(std::move(entry->second));
      arrived_.erase(entry);
    }
  }
  for (auto& promise : cancelled) promise.Set(absl::CancelledError("the controller disconnected"));
}

Future<transport::Buffer> IncomingTransfers::Expect(uint64_t controller, uint64_t transfer, uint64_t from) {
  absl::MutexLock lock(&mu_);
  const Key key(controller, transfer);
  if (auto it = arrived_.find(key); it != arrived_.end()) {
    Arrival arrival = *std::move(it->second);
    arrived_.erase(it);
    return Future<transport::Buffer>(std::move(arrival));
  }
  if (auto it = lost_peers_.find(from); it != lost_peers_.end()) {
    return Future<transport::Buffer>(Arrival(it->second));
  }
  auto [entry, is_new] = expected_.try_emplace(key);
  if (!is_new) {
    return Future<transport::Buffer>(
        Arrival(absl::AlreadyExistsError(absl::StrCat("transfer ", transfer, " is being received already"))));
  }
  entry->second.from = from;
  return entry->second.promise.future();
}

void IncomingTransfers::Arrive(uint64_t controller, uint64_t transfer, Arrival arrival) {
  Promise<transport::Buffer> waiting;
  {
    absl::MutexLock lock(&mu_);
    const Key key(controller, transfer);
    auto it = expected_.find(key);
    if (it == expected_.end()) {
      if (!dropped_controllers_.contains(controller))
        arrived_.emplace(key, std::make_unique<Arrival>(std::move(arrival)));
      return;
    }
    waiting = std::move(it->second.promise);
    expected_.erase(it);
  }
  waiting.Set(std::move(arrival));
}

void IncomingTransfers::OnPeerLost(uint64_t peer, const absl::Status& status) {
  std::vector<Promise<transport::Buffer>> failed;
  {
    absl::MutexLock lock(&mu_);
    lost_peers_.emplace(peer, status);
    for (auto it = expected_.begin(); it != expected_.end();) {
      auto entry = it++;
      if (entry->second.from != peer) continue;
      failed.push_back(std::move(entry->second.promise));
      expected_.erase(entry);
    }
  }
  for (auto& promise : failed) promise.Set(status);
}

}  // namespace openpathways::worker
