#include "ifrt/reshard.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/memory_kind.h"
#include "ifrt/moves.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

using cluster::WorkerRef;

// Collects what every worker has to send and to put together, then sends it as one operation.
class Movement {
 public:
  explicit Movement(const cluster::Cluster& cluster) : cluster_(cluster) {}

  // New buffers of one worker that get the same elements.
  worker::MoveBoxes::Composition* Compose(const WorkerRef& worker, const ArraySpec& spec, const Shape& shape) {
    worker::MoveBoxes::Composition* composition = PartOf(worker).command.add_compositions();
    composition->set_element_type(static_cast<int>(spec.dtype));
    composition->mutable_dims()->Add(shape.begin(), shape.end());
    return composition;
  }

  // `part` (in the array's coordinates) of the new buffers that hold `target`, out of the shard that holds `held`.
  void Add(worker::MoveBoxes::Composition* composition, const WorkerRef& to, const Box& target, const ShardRef& source,
           const Box& held, const Box& part, int64_t element_size) {
    worker::MoveBoxes::Piece* piece = composition->add_pieces();
    piece->mutable_size()->Add(part.size.begin(), part.size.end());
    AddOffset(part, target, piece->mutable_begin());
    if (source->worker() == to) {
      piece->set_source(source->buffer());
      AddOffset(part, held, piece->mutable_source_begin());
      return;
    }
    const uint64_t transfer = cluster_.dispatcher()->NewNames();
    piece->set_transfer(transfer);
    piece->set_peer(Peer(PartOf(to), source->worker()));
    Participant& sender = PartOf(source->worker());
    const uint32_t receiver = Peer(sender, to);
    worker::MoveBoxes::Send* send = sender.command.add_sends();
    send->set_peer(receiver);
    send->set_transfer(transfer);
    send->set_source(source->buffer());
    AddOffset(part, held, send->mutable_begin());
    send->mutable_size()->Add(part.size.begin(), part.size.end());
    sent_[source->worker().get()] += element_size * NumElements(part.size);
  }

  // Bytes that a worker is to send.
  int64_t sent(const WorkerRef& worker) const {
    const auto found = sent_.find(worker.get());
    return found == sent_.end() ? 0 : found->second;
  }

  void Send() {
    if (participants_.empty()) return;
    cluster::Operation operation;
    for (auto& participant : participants_) {
      cluster::Outgoing outgoing;
      outgoing.command.mutable_move_boxes()->Swap(&participant->command);
      // The peers' addresses may become known only later.
      outgoing.complete = [peers = std::move(participant->peers)](worker::Command& command) {
        for (const WorkerRef& peer : peers) *command.mutable_move_boxes()->add_peers() = peer->address();
      };
      operation.needs.push_back(participant->worker);
      operation.parts.push_back({participant->worker, std::move(outgoing)});
    }
    cluster_.dispatcher()->Dispatch(std::move(operation));
  }

 private:
  struct Participant {
    WorkerRef worker;
    worker::MoveBoxes command;
    std::vector<WorkerRef> peers;
    absl::flat_hash_map<const cluster::Worker*, uint32_t> peer_index;
  };

  static void AddOffset(const Box& part, const Box& whole, google::protobuf::RepeatedField<int64_t>* begin) {
    for (size_t d = 0; d < part.begin.size(); ++d) begin->Add(part.begin[d] - whole.begin[d]);
  }

  Participant& PartOf(const WorkerRef& worker) {
    auto [found, is_new] = index_.try_emplace(worker.get(), participants_.size());
    if (is_new) {
      participants_.push_back(std::make_unique<Participant>());
      participants_.back()->worker = worker;
    }
    return *participants_[found->second];
  }

  static uint32_t Peer(Participant& participant, const WorkerRef& peer) {
    auto [found, is_new] =
        participant.peer_index.try_emplace(peer.get(), static_cast<uint32_t>(participant.peers.size()));
    if (is_new) participant.peers.push_back(peer);
    return found->second;
  }

  const cluster::Cluster& cluster_;
  std::vector<std::unique_ptr<Participant>> participants_;
  absl::flat_hash_map<const cluster::Worker*, size_t> index_;
  absl::flat_hash_map<const cluster::Worker*, int64_t> sent_;
};

// Shards that hold the same elements.
struct Part {
  Box box;
  std::vector<int> shards;
};

absl::StatusOr<std::vector<Part>> PartsOf(const Sharding& sharding, const Shape& shape) {
  std::vector<Part> parts;
  absl::flat_hash_map<Box, size_t> index;
  for (int k = 0; k < static_cast<int>(sharding.devices().size()); ++k) {
    ASSIGN_OR_RETURN(Box box, sharding.ShardBox(shape, k));
    auto [found, is_new] = index.try_emplace(box, parts.size());
    if (is_new) parts.push_back({std::move(box), {}});
    parts[found->second].shards.push_back(k);
  }
  return parts;
}

// One array on its way to another sharding. Everything that can fail is done by Create.
class Plan {
 public:
  static absl::StatusOr<Plan> Create(const ArrayRef& array, ArraySpec spec) {
    if (array->dtype() != spec.dtype || array->shape() != spec.shape) {
      return absl::InvalidArgumentError(absl::StrCat("an array ", ToString(array->dtype()), ToString(array->shape()),
                                                     " cannot be resharded to ", ToString(spec.dtype),
                                                     ToString(spec.shape)));
    }
    RETURN_IF_ERROR(CheckMemoryKind(spec.sharding->memory_kind()));
    Plan plan(array, std::move(spec));
    RETURN_IF_ERROR(plan.FindParts());
    // Loss of a worker is found on the result; other failures are errors of the call.
    if (absl::Status status = plan.shards_.status(); !status.ok() && !absl::IsDataLoss(status)) return status;
    return plan;
  }

  ArrayRef Carry(const cluster::Cluster& cluster, CopySemantics semantics, Movement& movement, Moves& moves) {
    if (!shards_.ok()) return std::make_shared<Array>(std::move(spec_), shards_.status());
    std::vector<WorkerRef> workers;
    for (const Device* device : spec_.sharding->devices()) {
      workers.push_back(cluster.worker(device->slice, device->host));
      if (workers.back()->lost()) return std::make_shared<Array>(std::move(spec_), workers.back()->status());
    }
    std::vector<ShardRef> results(workers.size());
    const bool may_alias = semantics != CopySemantics::kAlwaysCopy;
    if (!source_of_.empty()) {
      MoveWhole(workers, may_alias, moves, results);
    } else {
      for (const Part& target : targets_) ComposePart(cluster, target, workers, may_alias, movement, results);
    }
    return std::make_shared<Array>(std::move(spec_), std::move(results));
  }

 private:
  Plan(const ArrayRef& array, ArraySpec spec) : array_(array), spec_(std::move(spec)), shards_(array->shards()) {}

  absl::Status FindParts() {
    absl::StatusOr<std::vector<Part>> sources = PartsOf(*array_->sharding(), spec_.shape);
    absl::StatusOr<std::vector<Part>> targets = PartsOf(*spec_.sharding, spec_.shape);
    if (sources.ok() && targets.ok()) {
      sources_ = *std::move(sources);
      targets_ = *std::move(targets);
      return spec_.dtype == DType::kString ? FindWholeShards() : absl::OkStatus();
    }
    // What shards hold is not known, but they may stay as they are.
    const Sharding& from = *array_->sharding();
    if (!(from.partitioning() == spec_.sharding->partitioning()) ||
        from.devices().size() != spec_.sharding->devices().size()) {
      return sources.ok() ? targets.status() : sources.status();
    }
    RETURN_IF_ERROR(from.ShardShape(spec_.shape, 0).status());
    for (int k = 0; k < static_cast<int>(from.devices().size()); ++k) source_of_.push_back(k);
    return absl::OkStatus();
  }

  // Strings are not cut: every shard must be there as it is.
  absl::Status FindWholeShards() {
    source_of_.assign(spec_.sharding->devices().size(), -1);
    for (const Part& target : targets_) {
      const auto source =
          std::find_if(sources_.begin(), sources_.end(), [&](const Part& source) { return source.box == target.box; });
      if (source == sources_.end()) {
        return absl::UnimplementedError("shards of arrays of strings can be moved, but not cut or joined");
      }
      for (int k : target.shards) {
        source_of_[k] = source->shards.front();
        for (int j : source->shards) {
          if (array_->sharding()->devices()[j] == spec_.sharding->devices()[k]) source_of_[k] = j;
        }
      }
    }
    return absl::OkStatus();
  }

  void MoveWhole(const std::vector<WorkerRef>& workers, bool may_alias, Moves& moves,
                 std::vector<ShardRef>& results) const {
    for (size_t k = 0; k < results.size(); ++k) {
      const int source = source_of_[k];
      if (may_alias && IsThere(source, static_cast<int>(k))) {
        results[k] = (*shards_)[source];
        continue;
      }
      const Shape shape = *array_->sharding()->ShardShape(spec_.shape, source);  // was found by FindParts
      results[k] = moves.Add((*shards_)[source], workers[k], *spec_.sharding->devices()[k], spec_, shape);
    }
  }

  void ComposePart(const cluster::Cluster& cluster, const Part& target, const std::vector<WorkerRef>& workers,
                   bool may_alias, Movement& movement, std::vector<ShardRef>& results) const {
    if (may_alias) KeepInPlace(target, results);
    for (size_t first = 0; first < target.shards.size(); ++first) {
      if (results[target.shards[first]] != nullptr) continue;
      // All that is to be the same on one worker is put together once.
      const WorkerRef& worker = workers[target.shards[first]];
      worker::MoveBoxes::Composition* composition = movement.Compose(worker, spec_, target.box.size);
      for (size_t i = first; i < target.shards.size(); ++i) {
        const int k = target.shards[i];
        if (results[k] != nullptr || workers[k] != worker) continue;
        results[k] = std::make_shared<Shard>(cluster.dispatcher(), worker, cluster.dispatcher()->NewNames());
        SetTarget(*results[k], *spec_.sharding->devices()[k], spec_, composition->add_targets());
      }
      AddPieces(composition, worker, target.box, movement);
    }
  }

  bool IsThere(int source, int target) const {
    const Sharding& from = *array_->sharding();
    return from.devices()[source] == spec_.sharding->devices()[target] &&
           IsSameMemory(from.memory_kind(), spec_.sharding->memory_kind()) &&
           array_->spec().minor_to_major == spec_.minor_to_major;
  }

  void KeepInPlace(const Part& target, std::vector<ShardRef>& results) const {
    for (const Part& source : sources_) {
      if (!(source.box == target.box)) continue;
      for (int k : target.shards) {
        for (int j : source.shards) {
          if (IsThere(j, k)) results[k] = (*shards_)[j];
        }
      }
    }
  }

  void AddPieces(worker::MoveBoxes::Composition* composition, const WorkerRef& worker, const Box& target,
                 Movement& movement) const {
    for (const Part& source : sources_) {
      std::optional<Box> part = Intersect(source.box, target);
      if (!part.has_value() || NumElements(part->size) == 0) continue;
      const ShardRef& shard = Nearest(source, worker, movement);
      movement.Add(composition, worker, target, shard, source.box, *part, HostElementSize(spec_.dtype));
    }
  }

  const ShardRef& Nearest(const Part& source, const WorkerRef& to, const Movement& movement) const {
    auto cost = [&](int j) {
      const WorkerRef& from = (*shards_)[j]->worker();
      const int distance = from == to ? 0 : from->slice() == to->slice() ? 1 : 2;
      return std::make_tuple(distance, movement.sent(from));
    };
    const auto nearest =
        std::min_element(source.shards.begin(), source.shards.end(), [&](int a, int b) { return cost(a) < cost(b); });
    return (*shards_)[*nearest];
  }

  ArrayRef array_;
  ArraySpec spec_;
  absl::StatusOr<std::vector<ShardRef>> shards_;
  std::vector<Part> sources_;
  std::vector<Part> targets_;
  std::vector<int> source_of_;  // unless empty: each shard is the whole of one of the array's
};

}  // namespace

absl::StatusOr<std::vector<ArrayRef>> Reshard(const cluster::Cluster& cluster, absl::Span<const ArrayRef> arrays,
                                              std::vector<ArraySpec> specs, CopySemantics semantics) {
  if (arrays.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arrays.size(), " arrays cannot be resharded to ", specs.size(), " shardings"));
  }
  // Everything that can fail is checked before anything is sent.
  std::vector<Plan> plans;
  for (size_t i = 0; i < arrays.size(); ++i) {
    ASSIGN_OR_RETURN(Plan plan, Plan::Create(arrays[i], std::move(specs[i])));
    plans.push_back(std::move(plan));
  }
  Movement movement(cluster);
  Moves moves(cluster);
  std::vector<ArrayRef> results;
  for (Plan& plan : plans) results.push_back(plan.Carry(cluster, semantics, movement, moves));
  movement.Send();
  moves.Send();
  if (semantics == CopySemantics::kDonateInput) {
    for (const ArrayRef& array : arrays) array->Delete();
  }
  return results;
}

}  // namespace openpathways::ifrt
