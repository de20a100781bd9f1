#include "worker/incarnation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/machine.h"
#include "base/status.h"

namespace openpathways::worker {
namespace {

struct EngineAndPeers {
  std::shared_ptr<Peers> peers;  // outlives the engine
  std::unique_ptr<collectives::Engine> engine;
};

}  // namespace

Incarnation::Incarnation(const Identity& identity, transport::Transport* transport, ThreadPool* pool,
                         std::shared_ptr<Stats> stats)
    : identity_(identity), transport_(transport), pool_(pool) {
  resources_.worker_id = identity.worker_id;
  resources_.arena = &transport->arena();
  resources_.pool = pool;
  resources_.stats = std::move(stats);
  resources_.incoming = std::make_shared<IncomingTransfers>();
  resources_.peers = std::make_shared<Peers>(transport, identity.worker_id);
  // Launches may outlive this object: the engine, which they hold, keeps the peers that it sends through.
  const int threads = std::max(2, AvailableCpus());
  auto held = std::make_shared<EngineAndPeers>();
  held->peers = resources_.peers;
  held->engine = collectives::Engine::Create(identity.worker_id, resources_.peers.get(), threads);
  resources_.engine = std::shared_ptr<collectives::Engine>(held, held->engine.get());
  resources_.peers->SetOnLost([engine = std::weak_ptr<collectives::Engine>(resources_.engine),
                               incoming = resources_.incoming](WorkerId peer, const absl::Status& status) {
    incoming->OnPeerLost(peer, status);
    if (auto alive = engine.lock()) alive->OnPeerLost(peer, status);
  });
}

absl::StatusOr<std::shared_ptr<Incarnation>> Incarnation::Create(const Identity& identity,
                                                                 std::shared_ptr<pjrt::Plugin> plugin,
                                                                 transport::Transport* transport, ThreadPool* pool,
                                                                 std::shared_ptr<Stats> stats) {
  std::shared_ptr<Incarnation> incarnation(new Incarnation(identity, transport, pool, std::move(stats)));
  ASSIGN_OR_RETURN(incarnation->resources_.clients,
                   ClientPool::Create(std::move(plugin), identity.num_devices, identity.process_index));
  return incarnation;
}

Incarnation::~Incarnation() { End(); }

absl::StatusOr<std::shared_ptr<Session>> Incarnation::AddController(uint64_t controller,
                                                                    transport::ConnectionRef connection) {
  absl::MutexLock lock(&mu_);
  if (ended_) return absl::UnavailableError("this worker is leaving");
  auto [entry, is_new] = controllers_.try_emplace(controller);
  if (!is_new) return absl::AlreadyExistsError(absl::StrCat("controller ", controller, " is connected already"));
  entry->second.connection = connection;
  entry->second.session = std::make_shared<Session>(resources_, controller, std::move(connection),
                                                    [this, controller] { SessionEnded(controller); });
  return entry->second.session;
}

void Incarnation::SessionEnded(uint64_t controller) {
  absl::MutexLock lock(&mu_);
  auto it = controllers_.find(controller);
  ended_sessions_.push_back(std::move(it->second.session));
  controllers_.erase(it);
  // A session cannot be destroyed on its own thread, which this is. Not for End: it destroys them itself.
  if (ended_) return;
  pool_->Post([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->DestroyEndedSessions();
  });
}

void Incarnation::DestroyEndedSessions() {
  std::vector<std::shared_ptr<Session>> sessions;
  absl::MutexLock lock(&mu_);
  sessions.swap(ended_sessions_);
}

absl::Status Incarnation::OnPeerMessage(WorkerId peer, transport::Message message) {
  PeerMessage parsed;
  if (!parsed.ParseFromString(message.header)) return absl::InvalidArgumentError("a message that is no peer message");
  switch (parsed.message_case()) {
    case PeerMessage::kCollective:
      resources_.engine->OnMessage(peer, parsed.collective(), std::move(message.payload));
      return absl::OkStatus();
    case PeerMessage::kTransfer: {
      const Transfer& transfer = parsed.transfer();
      const absl::Status status = StatusFromProto(transfer.status());
      resources_.incoming->Arrive(
          transfer.controller(), transfer.transfer(),
          status.ok() ? IncomingTransfers::Arrival(std::move(message.payload)) : IncomingTransfers::Arrival(status));
      return absl::OkStatus();
    }
    case PeerMessage::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a peer message of a kind that this worker does not know");
}

void Incarnation::OnPeerClosed(WorkerId peer, const absl::Status& status) {
  resources_.peers->MarkLost(peer,
                             absl::UnavailableError(absl::StrCat("the connection from it broke: ", status.message())));
}

void Incarnation::End() {
  std::vector<Controller> controllers;
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
    for (const auto& [id, controller] : controllers_) controllers.push_back(controller);
  }
  for (const Controller& controller : controllers) {
    controller.connection->Close();
    controller.session->End();
  }
  controllers.clear();
  std::vector<std::shared_ptr<Session>> ended;
  {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](absl::flat_hash_map<uint64_t, Controller>* map) { return map->empty(); }, &controllers_));
    ended.swap(ended_sessions_);
  }
  ended.clear();
  resources_.peers->Close();
}

}  // namespace openpathways::worker
