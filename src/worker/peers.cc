#include "worker/peers.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "worker/protocol.h"

namespace openpathways::worker {
namespace {

std::string PeerName(WorkerId peer, const WorkerAddress& address) {
  if (address.address().empty()) return absl::StrCat("worker ", peer);
  return absl::StrCat("slice ", address.slice(), " host ", address.host());
}

std::string PeerHello(WorkerId self, WorkerId peer) {
  Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_role(Hello::PEER);
  hello.set_id(self);
  hello.set_worker_id(peer);
  return hello.SerializeAsString();
}

}  // namespace

void Peers::Connect(const WorkerAddress& address) {
  const WorkerId id = address.worker_id();
  if (id == self_) return;
  absl::MutexLock connecting(&connect_mu_);
  absl::Status broken;
  {
    absl::MutexLock lock(&mu_);
    Peer& peer = peers_[id];
    peer.address = address;
    if (closed_ || peer.reported || peer.connection != nullptr) return;
    broken = peer.connection_error;
  }
  if (!broken.ok()) {
    MarkLost(id, broken);
    return;
  }
  transport::ConnectionCallbacks callbacks;
  callbacks.on_message = [id](transport::Message message) {
    spdlog::warn("worker {} sent a message over a connection that is only for ours; ignored", id);
  };
  callbacks.on_closed = [weak = weak_from_this(), id](absl::Status status) {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->MarkLost(id, absl::UnavailableError(absl::StrCat("the connection to it broke: ", status.message())));
  };
  transport::ConnectionRef connection = transport_->Connect(address.address(), std::move(callbacks));
  connection->Send(PeerHello(self_, id));
  absl::MutexLock lock(&mu_);
  peers_[id].connection = std::move(connection);  // even if it has broken already: what is sent then is dropped
}

void Peers::Send(WorkerId peer, std::string header, transport::Buffer payload) {
  PeerMessage message;
  message.set_collective(std::move(header));
  SendMessage(peer, message, std::move(payload));
}

void Peers::SendTransfer(WorkerId peer, const Transfer& transfer, transport::Buffer payload) {
  PeerMessage message;
  *message.mutable_transfer() = transfer;
  SendMessage(peer, message, std::move(payload));
}

void Peers::SendMessage(WorkerId peer, const PeerMessage& message, transport::Buffer payload) {
  transport::ConnectionRef connection;
  {
    absl::MutexLock lock(&mu_);
    auto it = peers_.find(peer);
    if (it != peers_.end()) connection = it->second.connection;
  }
  if (connection == nullptr) {
    MarkLost(peer, absl::NotFoundError("its address is not known to this worker"));
    return;
  }
  connection->Send(message.SerializeAsString(), std::move(payload));
}

bool Peers::SharesMemory(WorkerId peer) {
  transport::ConnectionRef connection;
  {
    absl::MutexLock lock(&mu_);
    auto it = peers_.find(peer);
    if (it != peers_.end()) connection = it->second.connection;
  }
  return connection != nullptr && connection->is_shared_memory();
}

void Peers::MarkLost(WorkerId peer, const absl::Status& status) {
  std::string name;
  {
    absl::MutexLock lock(&mu_);
    Peer& entry = peers_[peer];
    if (closed_ || entry.reported) return;
    if (absl::IsUnavailable(status) && entry.address.address().empty()) {
      entry.connection_error = status;
      return;
    }
    entry.reported = true;
    name = PeerName(peer, entry.address);
  }
  const absl::Status loss =
      absl::IsDataLoss(status) ? status : absl::DataLossError(absl::StrCat(name, " is lost: ", status.message()));
  spdlog::warn("{}", std::string(loss.message()));
  on_lost_(peer, loss);
}

void Peers::Close() {
  std::vector<transport::ConnectionRef> connections;
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    for (auto& [id, peer] : peers_) {
      if (peer.connection != nullptr) connections.push_back(std::move(peer.connection));
      peer.connection = nullptr;
    }
  }
  for (const auto& connection : connections) connection->Close();
}

}  // namespace openpathways::worker
