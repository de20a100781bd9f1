#include "ifrt/copy.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/memory_kind.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

// Collects the moves of shards, then sends them, one batch for each pair of workers.
class Moves {
 public:
  explicit Moves(const cluster::Cluster& cluster) : cluster_(cluster) {}

  // The copy of `source` on `device`, whose worker is `to`.
  ShardRef Add(const ShardRef& source, cluster::WorkerRef to, const Device& device, const std::string& memory_kind,
               DType dtype, const Shape& shape) {
    cluster::Dispatcher& dispatcher = *cluster_.dispatcher();
    ShardRef target = std::make_shared<Shard>(cluster_.dispatcher(), std::move(to), dispatcher.NewNames());
    Batch& batch = BatchFor(source->worker(), target->worker());
    if (source->worker() == target->worker()) {
      worker::CopyBuffers::Copy* copy = batch.copies.add_copies();
      copy->set_source(source->buffer());
      SetTarget(*target, device, memory_kind, copy->mutable_target());
    } else {
      const uint64_t transfer = dispatcher.NewNames();
      worker::SendBuffers::Send* send = batch.sends.add_sends();
      send->set_transfer(transfer);
      send->set_source(source->buffer());
      worker::ReceiveBuffers::Receive* receive = batch.receives.add_receives();
      receive->set_transfer(transfer);
      SetTarget(*target, device, memory_kind, receive->mutable_target());
      receive->set_element_type(static_cast<int>(dtype));
      receive->mutable_dims()->Add(shape.begin(), shape.end());
    }
    return target;
  }

  void Send() {
    for (Batch& batch : batches_) {
      if (batch.from == batch.to) {
        cluster::Outgoing outgoing;
        outgoing.command.mutable_copy_buffers()->Swap(&batch.copies);
        cluster_.dispatcher()->Send(batch.from, std::move(outgoing));
      } else {
        cluster_.dispatcher()->Dispatch(BetweenWorkers(batch));
      }
    }
  }

 private:
  struct Batch {
    cluster::WorkerRef from;
    cluster::WorkerRef to;
    worker::CopyBuffers copies;
    worker::SendBuffers sends;
    worker::ReceiveBuffers receives;
  };

  static void SetTarget(const Shard& shard, const Device& device, const std::string& memory_kind,
                        worker::Target* target) {
    target->set_buffer(shard.buffer());
    target->set_device(device.ordinal);
    target->set_memory_kind(memory_kind);
  }

  // Each end names the other, whose address may become known only later.
  static cluster::Operation BetweenWorkers(Batch& batch) {
    cluster::Outgoing sends;
    sends.command.mutable_send_buffers()->Swap(&batch.sends);
    sends.complete = [to = batch.to](worker::Command& command) {
      *command.mutable_send_buffers()->mutable_destination() = to->address();
    };
    cluster::Outgoing receives;
    receives.command.mutable_receive_buffers()->Swap(&batch.receives);
    receives.complete = [from = batch.from](worker::Command& command) {
      *command.mutable_receive_buffers()->mutable_source() = from->address();
    };
    cluster::Operation operation;
    operation.parts.push_back({batch.from, std::move(sends)});
    operation.parts.push_back({batch.to, std::move(receives)});
    operation.needs = {batch.from, batch.to};
    return operation;
  }

  Batch& BatchFor(const cluster::WorkerRef& from, const cluster::WorkerRef& to) {
    auto [found, is_new] = index_.try_emplace({from.get(), to.get()}, batches_.size());
    if (is_new) {
      batches_.emplace_back();
      batches_.back().from = from;
      batches_.back().to = to;
    }
    return batches_[found->second];
  }

  const cluster::Cluster& cluster_;
  std::vector<Batch> batches_;
  absl::flat_hash_map<std::pair<cluster::Worker*, cluster::Worker*>, size_t> index_;
};

struct Where {
  DeviceList devices;
  std::string memory_kind;
};

absl::StatusOr<Where> Target(const Array& array, const std::optional<DeviceList>& devices,
                             const std::optional<std::string>& memory_kind) {
  Where where{devices.value_or(array.sharding()->devices()), memory_kind.value_or(array.sharding()->memory_kind())};
  RETURN_IF_ERROR(CheckMemoryKind(where.memory_kind));
  if (where.devices.size() != array.sharding()->devices().size()) {
    return absl::InvalidArgumentError(absl::StrCat("an array over ", array.sharding()->devices().size(),
                                                   " devices cannot be copied to ", where.devices.size(), " devices"));
  }
  RETURN_IF_ERROR(array.sharding()->ShardShape(array.shape(), 0).status());
  return where;
}

absl::StatusOr<ArrayRef> CopyOne(const cluster::Cluster& cluster, const Array& array,
                                 const std::vector<ShardRef>& sources, Where where, CopySemantics semantics,
                                 Moves& moves) {
  const Sharding& from = *array.sharding();
  const bool same_memory = IsSameMemory(from.memory_kind(), where.memory_kind);
  ArraySpec spec = array.spec();
  ASSIGN_OR_RETURN(spec.sharding, from.WithDevices(where.devices, where.memory_kind));
  std::vector<cluster::WorkerRef> workers;
  std::vector<Shape> shapes;
  for (size_t k = 0; k < sources.size(); ++k) {
    workers.push_back(cluster.worker(where.devices[k]->slice, where.devices[k]->host));
    if (workers.back()->lost()) return std::make_shared<Array>(std::move(spec), workers.back()->status());
    ASSIGN_OR_RETURN(Shape shape, from.ShardShape(array.shape(), static_cast<int>(k)));
    shapes.push_back(std::move(shape));
  }
  std::vector<ShardRef> shards;
  for (size_t k = 0; k < sources.size(); ++k) {
    const bool stays = same_memory && where.devices[k] == from.devices()[k];
    if (stays && semantics != CopySemantics::kAlwaysCopy) {
      shards.push_back(sources[k]);
    } else {
      shards.push_back(moves.Add(sources[k], workers[k], *where.devices[k], where.memory_kind, spec.dtype, shapes[k]));
    }
  }
  return std::make_shared<Array>(std::move(spec), std::move(shards));
}

}  // namespace

absl::StatusOr<std::vector<ArrayRef>> CopyToDevices(const cluster::Cluster& cluster, absl::Span<const ArrayRef> arrays,
                                                    const std::optional<DeviceList>& devices,
                                                    const std::optional<std::string>& memory_kind,
                                                    CopySemantics semantics) {
  // Everything that can fail is checked before anything is sent.
  std::vector<Where> targets;
  std::vector<absl::StatusOr<std::vector<ShardRef>>> sources;
  for (const ArrayRef& array : arrays) {
    ASSIGN_OR_RETURN(Where where, Target(*array, devices, memory_kind));
    targets.push_back(std::move(where));
    sources.push_back(array->shards());
    // Loss of a worker is found on the result; other failures are errors of the call.
    if (!sources.back().ok() && !absl::IsDataLoss(sources.back().status())) return sources.back().status();
  }
  Moves moves(cluster);
  std::vector<ArrayRef> copies;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!sources[i].ok()) {
      ArraySpec spec = arrays[i]->spec();
      ASSIGN_OR_RETURN(spec.sharding, spec.sharding->WithDevices(targets[i].devices, targets[i].memory_kind));
      copies.push_back(std::make_shared<Array>(std::move(spec), sources[i].status()));
      continue;
    }
    ASSIGN_OR_RETURN(ArrayRef copy, CopyOne(cluster, *arrays[i], *sources[i], std::move(targets[i]), semantics, moves));
    copies.push_back(std::move(copy));
  }
  moves.Send();
  if (semantics == CopySemantics::kDonateInput) {
    for (const ArrayRef& array : arrays) array->Delete();
  }
  return copies;
}

}  // namespace openpathways::ifrt
