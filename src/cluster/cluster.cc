#include "cluster/cluster.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/delayed_tasks.h"
#include "base/logging.h"
#include "base/status.h"

namespace openpathways::cluster {
namespace {

constexpr absl::Duration kFirstReconnect = absl::Milliseconds(500);
constexpr absl::Duration kLongestReconnect = absl::Seconds(5);
constexpr absl::Duration kHeldWorkCheck = absl::Seconds(1);
constexpr absl::Duration kHeldWorkReport = absl::Seconds(30);
constexpr size_t kNamedPlaces = 8;

uint64_t RandomId() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

absl::StatusOr<std::vector<topology::SliceTopology>> ParseSlices(const resource_manager::ClusterSnapshot& snapshot) {
  std::vector<topology::SliceTopology> slices;
  for (const std::string& type : snapshot.instance_type()) {
    ASSIGN_OR_RETURN(topology::SliceTopology slice, topology::SliceTopology::Parse(type));
    slices.push_back(std::move(slice));
  }
  if (slices.empty()) return absl::FailedPreconditionError("the resource manager has no slices");
  return slices;
}

}  // namespace

class Cluster::Places : public std::enable_shared_from_this<Places> {
 public:
  explicit Places(transport::Transport* transport)
      : controller_id_(RandomId()), dispatcher_(std::make_shared<Dispatcher>()), transport_(transport) {}

  void OnSnapshot(const resource_manager::ClusterSnapshot& snapshot);
  absl::Status AwaitShape();
  void Shutdown();

  const std::vector<topology::SliceTopology>& slices() const { return slices_; }
  WorkerRef worker(int slice, int host) const {
    std::lock_guard lock(mu_);
    return places_[first_place_[slice] + host].worker;
  }
  const std::shared_ptr<Dispatcher>& dispatcher() const { return dispatcher_; }

 private:
  struct Place {
    WorkerRef worker;        // never null
    uint64_t worker_id = 0;  // that the RM has named last
    std::string address;
    bool registered = false;  // the RM says that worker_id is there
  };

  WorkerRef NewWorker(int slice, int host);
  void SetShape(const resource_manager::ClusterSnapshot& snapshot);
  void OnSlot(const resource_manager::Slot& slot);
  void OnLost(const WorkerRef& worker);
  void Reconnect(int slice, int host, uint64_t worker_id, absl::Duration pause);
  void WatchHeldWork(absl::Time last_report);
  Place* Find(int slice, int host);  // REQUIRES: mu_ is held

  const uint64_t controller_id_;
  const std::shared_ptr<Dispatcher> dispatcher_;
  std::vector<topology::SliceTopology> slices_;  // set once, before AwaitShape returns
  std::vector<int> first_place_;                 // of each slice; as slices_

  mutable std::mutex mu_;            // guards what follows
  transport::Transport* transport_;  // null after Shutdown
  std::vector<Place> places_;
  bool have_shape_ = false;
  std::condition_variable shape_known_;
  absl::Status shape_status_;
  std::string shape_;  // instance types, to notice another cluster
  std::unique_ptr<DelayedTasks> delayed_ = std::make_unique<DelayedTasks>();
};

WorkerRef Cluster::Places::NewWorker(int slice, int host) {
  std::weak_ptr<Places> weak = weak_from_this();
  Worker::Listener listener;
  listener.on_ready = [weak](const WorkerRef& worker) {
    std::shared_ptr<Places> places = weak.lock();
    if (places == nullptr) return;
    spdlog::info("{} ({}) is ready", worker->name(), worker->address().address());
    places->dispatcher_->OnSettled();
  };
  listener.on_lost = [weak](const WorkerRef& worker) {
    if (std::shared_ptr<Places> places = weak.lock()) places->OnLost(worker);
  };
  return std::make_shared<Worker>(slice, host, controller_id_, std::move(listener));
}

void Cluster::Places::SetShape(const resource_manager::ClusterSnapshot& snapshot) {
  absl::StatusOr<std::vector<topology::SliceTopology>> slices = ParseSlices(snapshot);
  std::vector<Place> places;
  if (slices.ok()) {
    slices_ = *std::move(slices);
    for (size_t slice = 0; slice < slices_.size(); ++slice) {
      first_place_.push_back(static_cast<int>(places.size()));
      for (int host = 0; host < slices_[slice].num_hosts(); ++host) {
        Place place;
        place.worker = NewWorker(static_cast<int>(slice), host);
        places.push_back(std::move(place));
      }
    }
  }
  std::lock_guard lock(mu_);
  places_ = std::move(places);
  shape_status_ = slices.status();
  have_shape_ = true;
  shape_known_.notify_all();
}

absl::Status Cluster::Places::AwaitShape() {
  std::unique_lock lock(mu_);
  shape_known_.wait(lock, [this] { return have_shape_; });
  return shape_status_;
}

Cluster::Places::Place* Cluster::Places::Find(int slice, int host) {
  if (slice < 0 || slice >= static_cast<int>(slices_.size())) return nullptr;
  if (host < 0 || host >= slices_[slice].num_hosts()) return nullptr;
  return &places_[first_place_[slice] + host];
}

void Cluster::Places::OnSnapshot(const resource_manager::ClusterSnapshot& snapshot) {
  std::string shape;
  for (const std::string& type : snapshot.instance_type()) absl::StrAppend(&shape, type, ",");
  bool first = false;
  {
    std::lock_guard lock(mu_);
    first = !have_shape_;
    if (first) shape_ = shape;
    if (shape_ != shape) {
      spdlog::error("the resource manager now describes another cluster ({}, was {}): restart this proxy to use it",
                    shape, shape_);
      return;
    }
  }
  if (first) {
    SetShape(snapshot);
    WatchHeldWork(absl::InfinitePast());
  }
  for (const resource_manager::Slot& slot : snapshot.slots()) OnSlot(slot);
}

void Cluster::Places::OnSlot(const resource_manager::Slot& slot) {
  WorkerRef lost;
  std::string why;
  WorkerRef connect;
  transport::Transport* transport = nullptr;
  {
    std::lock_guard lock(mu_);
    Place* place = Find(slot.slice(), slot.host());
    if (place == nullptr || transport_ == nullptr) return;
    transport = transport_;
    const bool known = slot.worker_id() == place->worker_id;
    if (slot.state() == resource_manager::READY) {
      place->registered = true;
      if (known) return;
      // Someone new. Who waits for the first worker of this place gets this one; anything else is over.
      if (place->worker_id != 0 || place->worker->lost()) {
        lost = place->worker;
        why = "another worker has taken its place";
        place->worker = NewWorker(slot.slice(), slot.host());
      }
      place->worker_id = slot.worker_id();
      place->address = slot.address();
      connect = place->worker;
    } else if (slot.state() == resource_manager::LOST) {
      // A place whose worker was lost before this controller came is lost to it, too. (An RM that has been restarted
      // says MISSING of a worker that has not come back to it yet: that worker may be well.)
      if (!known && place->worker_id != 0) return;
      place->worker_id = slot.worker_id();
      place->address = slot.address();
      place->registered = false;
      lost = place->worker;
      why = slot.lost_reason().empty() ? "the resource manager has lost it" : slot.lost_reason();
    } else if (slot.state() == resource_manager::JOINING && !known && place->registered) {
      // The news of the loss was merged with that of the newcomer, who has still to be ready.
      place->registered = false;
      lost = place->worker;
      why = "another worker is taking its place";
    }
  }
  if (lost != nullptr) lost->Lose(why);
  if (connect != nullptr) connect->Connect(*transport, slot.worker_id(), slot.address());
}

void Cluster::Places::OnLost(const WorkerRef& worker) {
  const uint64_t worker_id = worker->worker_id();
  std::vector<WorkerRef> others;
  bool reconnect = false;
  {
    std::lock_guard lock(mu_);
    if (transport_ == nullptr) return;
    for (const Place& place : places_) {
      if (place.worker != worker && place.worker->settled() && !place.worker->lost()) others.push_back(place.worker);
    }
    const Place* place = Find(worker->slice(), worker->host());
    reconnect = place->worker_id == worker_id && place->registered && place->worker == worker;
  }
  dispatcher_->OnSettled();
  if (worker_id == 0) return;
  for (const WorkerRef& other : others) {
    Outgoing outgoing;
    worker::PeerLost* lost = outgoing.command.mutable_peer_lost();
    lost->set_worker_id(worker_id);
    *lost->mutable_status() = StatusToProto(worker->status());
    dispatcher_->Send(other, std::move(outgoing));
  }
  if (reconnect) Reconnect(worker->slice(), worker->host(), worker_id, kFirstReconnect);
}

// The connection broke, but the RM may find the process well: then it is worth another connection, to a worker that has
// forgotten what it held for this controller. Until that works the place stays lost.
void Cluster::Places::Reconnect(int slice, int host, uint64_t worker_id, absl::Duration pause) {
  auto attempt = [weak = weak_from_this(), slice, host, worker_id, pause] {
    std::shared_ptr<Places> places = weak.lock();
    if (places == nullptr) return;
    Worker::Listener listener;
    listener.on_ready = [weak, worker_id](const WorkerRef& worker) {
      std::shared_ptr<Places> places = weak.lock();
      if (places == nullptr) return;
      bool wanted = false;
      {
        std::lock_guard lock(places->mu_);
        Place* place = places->Find(worker->slice(), worker->host());
        wanted = place->worker_id == worker_id && place->registered && place->worker->lost();
        if (wanted) place->worker = worker;
      }
      if (!wanted) return worker->Shutdown();
      spdlog::info("{} ({}) is connected again", worker->name(), worker->address().address());
    };
    listener.on_lost = [weak, worker_id, pause](const WorkerRef& worker) {
      std::shared_ptr<Places> places = weak.lock();
      if (places == nullptr) return;
      bool current = false;
      {
        std::lock_guard lock(places->mu_);
        current = places->Find(worker->slice(), worker->host())->worker == worker;
      }
      // Once it was the place's worker it is lost as any other; before that it was only another failed attempt.
      if (current) return places->OnLost(worker);
      places->Reconnect(worker->slice(), worker->host(), worker_id, std::min(pause * 2, kLongestReconnect));
    };
    auto worker = std::make_shared<Worker>(slice, host, places->controller_id_, std::move(listener));
    std::lock_guard lock(places->mu_);
    const Place* place = places->Find(slice, host);
    if (places->transport_ == nullptr || place->worker_id != worker_id || !place->registered) return;
    worker->Connect(*places->transport_, worker_id, place->address);
  };
  std::lock_guard lock(mu_);
  if (delayed_ != nullptr) delayed_->RunAfter(pause, std::move(attempt));
}

// Clients see only that their work does not end: the log tells what it waits for. Goes on until every place has had its
// worker; from then on a place without one is lost, and says so.
void Cluster::Places::WatchHeldWork(absl::Time last_report) {
  std::vector<WorkerRef> missing, holding;
  {
    std::lock_guard lock(mu_);
    for (const Place& place : places_) {
      if (place.worker_id == 0) missing.push_back(place.worker);
    }
  }
  if (missing.empty()) return;
  for (const WorkerRef& worker : missing) {
    if (worker->holds_commands() || dispatcher_->IsAwaited(worker)) holding.push_back(worker);
  }
  if (!holding.empty() && absl::Now() - last_report >= kHeldWorkReport) {
    last_report = absl::Now();
    std::string names;
    for (size_t i = 0; i < holding.size() && i < kNamedPlaces; ++i) {
      absl::StrAppend(&names, i == 0 ? "" : ", ", holding[i]->name());
    }
    if (holding.size() > kNamedPlaces) absl::StrAppend(&names, " and ", holding.size() - kNamedPlaces, " more");
    spdlog::warn("work of clients waits for workers that have not come yet: {}", names);
  }
  std::lock_guard lock(mu_);
  if (delayed_ == nullptr) return;
  delayed_->RunAfter(kHeldWorkCheck, [weak = weak_from_this(), last_report] {
    if (std::shared_ptr<Places> places = weak.lock()) places->WatchHeldWork(last_report);
  });
}

void Cluster::Places::Shutdown() {
  std::vector<Place> places;
  std::unique_ptr<DelayedTasks> delayed;
  {
    std::lock_guard lock(mu_);
    transport_ = nullptr;
    places = places_;
    delayed = std::move(delayed_);
  }
  delayed.reset();
  for (const Place& place : places) place.worker->Shutdown();
}

Cluster::Cluster(std::unique_ptr<transport::Transport> transport, std::unique_ptr<Membership> membership)
    : transport_(std::move(transport)),
      places_(std::make_shared<Places>(transport_.get())),
      membership_(std::move(membership)) {}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Create(std::unique_ptr<Membership> membership) {
  ASSIGN_OR_RETURN(std::unique_ptr<transport::Transport> transport, transport::Transport::Create());
  std::unique_ptr<Cluster> cluster(new Cluster(std::move(transport), std::move(membership)));
  cluster->membership_->Start(
      [places = cluster->places_](const resource_manager::ClusterSnapshot& snapshot) { places->OnSnapshot(snapshot); });
  RETURN_IF_ERROR(cluster->places_->AwaitShape());
  return cluster;
}

Cluster::~Cluster() {
  membership_.reset();
  places_->Shutdown();
  transport_.reset();
}

const std::vector<topology::SliceTopology>& Cluster::slices() const { return places_->slices(); }
WorkerRef Cluster::worker(int slice, int host) const { return places_->worker(slice, host); }
const std::shared_ptr<Dispatcher>& Cluster::dispatcher() const { return places_->dispatcher(); }
transport::Transport& Cluster::transport() const { return *transport_; }

void Cluster::Ping(absl::AnyInvocable<void()> pong) {
  transport_->Post([places = places_, pong = std::move(pong)]() mutable {
    places->dispatcher()->Pass();
    places->worker(0, 0);
    pong();
  });
}

Future<std::vector<int32_t>> Cluster::AllocateDeviceIds() { return membership_->AllocateDeviceIds(); }
void Cluster::SetClientCount(int clients) { membership_->SetClientCount(clients); }

}  // namespace openpathways::cluster
