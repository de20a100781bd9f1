#include "collectives/engine.h"

#include <mutex>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "collectives/launch.h"
#include "collectives/message.h"

namespace openpathways::collectives {
namespace {

// Which launches of a controller have ended here, so that a late message (an abort, say) does not bring one back.
class EndedLaunches {
 public:
  void Add(uint64_t launch) {
    recent_.insert(launch);
    if (recent_.size() > kMaxRecent) {
      all_up_to_ = *recent_.begin();
      recent_.erase(recent_.begin());
    }
  }
  // For a launch that is not alive. Launches begin in ascending order, or nearly so: none is kMaxRecent late.
  bool Contains(uint64_t launch) const { return launch <= all_up_to_ || recent_.contains(launch); }

 private:
  static constexpr size_t kMaxRecent = 1024;
  std::set<uint64_t> recent_;
  uint64_t all_up_to_ = 0;
};

// The launches that this worker knows of: begun, or announced by messages of peers. Thread-safe.
class LaunchTable : public std::enable_shared_from_this<LaunchTable> {
 public:
  explicit LaunchTable(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  std::shared_ptr<Launch> Begin(const LaunchKey& key, std::shared_ptr<const Placement> placement) {
    std::shared_ptr<Launch> launch;
    absl::Status failure;
    WorkerId lost_peer = 0;
    {
      std::lock_guard lock(mu_);
      Entry& entry = FindLocked(key);
      launch = entry.launch;
      entry.placement = placement;
      launch->Begin(placement);
      if (lost_controllers_.contains(key.controller)) failure = ControllerLost(key.controller);
      for (WorkerId worker : *placement) {
        const auto lost = lost_peers_.find(worker);
        if (!failure.ok() || lost == lost_peers_.end()) continue;
        failure = lost->second;
        lost_peer = worker;
      }
    }
    if (!failure.ok()) launch->Fail(failure, /*tell_others=*/true, lost_peer);
    return launch;
  }

  // The launch that a message is for, or null if it is not wanted any more.
  std::shared_ptr<Launch> ForMessage(WorkerId from, const LaunchKey& key) {
    std::lock_guard lock(mu_);
    if (lost_controllers_.contains(key.controller) || lost_peers_.contains(from)) return nullptr;
    if (const auto it = launches_.find(key); it != launches_.end()) return it->second.launch;
    const auto ended = ended_.find(key.controller);
    if (ended != ended_.end() && ended->second.Contains(key.launch)) return nullptr;
    return FindLocked(key).launch;
  }

  void PeerLost(WorkerId peer, const absl::Status& status) {
    std::vector<std::shared_ptr<Launch>> concerned;
    {
      std::lock_guard lock(mu_);
      lost_peers_.insert({peer, status});
      for (const auto& [key, entry] : launches_) {
        if (entry.placement == nullptr) continue;
        for (WorkerId worker : *entry.placement) {
          if (worker != peer) continue;
          concerned.push_back(entry.launch);
          break;
        }
      }
    }
    // The others are told as well: their own connections to the peer may still look alive.
    for (const auto& launch : concerned) launch->Fail(status, /*tell_others=*/true, peer);
  }

  void LoseController(uint64_t controller) {
    std::vector<std::shared_ptr<Launch>> concerned;
    {
      std::lock_guard lock(mu_);
      lost_controllers_.insert(controller);
      ended_.erase(controller);
      for (auto it = launches_.begin(); it != launches_.end();) {
        const auto here = it++;
        if (here->first.controller != controller) continue;
        concerned.push_back(here->second.launch);
        launches_.erase(here);
      }
    }
    for (const auto& launch : concerned) launch->Fail(ControllerLost(controller), /*tell_others=*/false);
  }

  void FailAll(const absl::Status& status) {
    std::vector<std::shared_ptr<Launch>> all;
    {
      std::lock_guard lock(mu_);
      for (const auto& [key, entry] : launches_) all.push_back(entry.launch);
    }
    for (const auto& launch : all) launch->Fail(status, /*tell_others=*/false);
  }

 private:
  struct Entry {
    std::shared_ptr<Launch> launch;
    std::shared_ptr<const Placement> placement;  // null until the launch begins
  };

  static absl::Status ControllerLost(uint64_t controller) {
    return absl::CancelledError(absl::StrCat("the controller (", controller, ") of this launch is gone"));
  }

  Entry& FindLocked(const LaunchKey& key) {
    Entry& entry = launches_[key];
    if (entry.launch == nullptr) {
      entry.launch = std::make_shared<Launch>(runtime_, key, [table = weak_from_this(), key] {
        if (auto alive = table.lock()) alive->Ended(key);
      });
    }
    return entry;
  }

  void Ended(const LaunchKey& key) {
    std::lock_guard lock(mu_);
    launches_.erase(key);
    if (!lost_controllers_.contains(key.controller)) ended_[key.controller].Add(key.launch);
  }

  const std::shared_ptr<Runtime> runtime_;
  std::mutex mu_;  // guards what follows
  absl::flat_hash_map<LaunchKey, Entry> launches_;
  absl::flat_hash_map<uint64_t, EndedLaunches> ended_;  // per controller
  // Numbers are never used again, so these only grow, by a few bytes for each loss.
  absl::flat_hash_map<WorkerId, absl::Status> lost_peers_;
  absl::flat_hash_set<uint64_t> lost_controllers_;
};

class EngineImpl : public Engine {
 public:
  EngineImpl(WorkerId self, PeerNetwork* peers, int compute_threads)
      : runtime_(std::make_shared<Runtime>(self, peers, compute_threads)),
        table_(std::make_shared<LaunchTable>(runtime_)) {}

  ~EngineImpl() override {
    table_->FailAll(absl::CancelledError("the worker shuts down"));
    runtime_->pool.Shutdown();
  }

  LaunchRef BeginLaunch(const LaunchKey& key, std::shared_ptr<const Placement> placement) override {
    std::shared_ptr<Launch> launch = table_->Begin(key, std::move(placement));
    Launch* const raw = launch.get();
    return LaunchRef(raw, [launch = std::move(launch)](Launch*) { launch->Release(); });
  }

  void Join(const LaunchRef& launch, const hlo::CollectiveDescriptor& descriptor, JoinArgs args) override {
    launch->Join(descriptor, std::move(args));
  }

  void Abort(const LaunchRef& launch, const absl::Status& status) override {
    launch->Fail(status.ok() ? absl::AbortedError("the launch was aborted") : status, /*tell_others=*/true);
  }

  void OnMessage(WorkerId from, absl::string_view header, transport::Buffer payload) override {
    absl::StatusOr<Message> message = DecodeHeader(header);
    if (!message.ok()) {
      // Nobody to tell: we do not know which launch it is about.
      spdlog::error("worker {}: {}", from, std::string(message.status().message()));
      return;
    }
    if (auto launch = table_->ForMessage(from, message->launch)) launch->Receive(from, *message, std::move(payload));
  }

  void OnPeerLost(WorkerId peer, const absl::Status& status) override { table_->PeerLost(peer, status); }
  void OnControllerLost(uint64_t controller) override { table_->LoseController(controller); }

 private:
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<LaunchTable> table_;
};

}  // namespace

std::unique_ptr<Engine> Engine::Create(WorkerId self, PeerNetwork* peers, int compute_threads) {
  return std::make_unique<EngineImpl>(self, peers, compute_threads);
}

}  // namespace openpathways::collectives
