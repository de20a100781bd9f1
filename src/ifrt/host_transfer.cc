#include "ifrt/host_transfer.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/memory_kind.h"
#include "ifrt/moves.h"
#include "ifrt/shard.h"

namespace openpathways::ifrt {
namespace {

// Bytes on their way to a worker from which on producers wait.
constexpr size_t kMaxQueuedBytes = size_t{16} << 20;

struct Destination {
  cluster::WorkerRef worker;
  uint64_t transfer = 0;
};

// Bytes from the first to the last element of a host buffer.
absl::StatusOr<int64_t> HostBufferSize(DType dtype, const HostShard& shard) {
  const int64_t element_size = HostElementSize(dtype);
  if (NumElements(shard.shape) == 0) return 0;
  if (!shard.byte_strides.has_value()) return NumElements(shard.shape) * element_size;
  if (shard.byte_strides->size() != shard.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(shard.byte_strides->size(), " byte strides were given for shape ", ToString(shard.shape)));
  }
  int64_t size = element_size;
  for (size_t d = 0; d < shard.shape.size(); ++d) {
    if (shard.shape[d] <= 1) continue;
    const int64_t stride = (*shard.byte_strides)[d];
    if (stride <= 0) return absl::UnimplementedError("host buffers with negative or zero byte strides");
    size += (shard.shape[d] - 1) * stride;
  }
  return size;
}

absl::Status CheckShard(const ArraySpec& spec, const HostShard& shard, std::vector<bool>& filled) {
  if (shard.buffer == nullptr || shard.shard_indices.empty()) {
    return absl::InvalidArgumentError("a host buffer without bytes or without shards to fill");
  }
  for (int64_t index : shard.shard_indices) {
    if (index < 0 || index >= static_cast<int64_t>(filled.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no shard ", index, " in an array over ", filled.size(), " devices"));
    }
    if (filled[index]) return absl::InvalidArgumentError(absl::StrCat("shard ", index, " was given twice"));
    filled[index] = true;
    ASSIGN_OR_RETURN(Shape shape, spec.sharding->ShardShape(spec.shape, static_cast<int>(index)));
    if (shape != shard.shape) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", index, " has shape ", ToString(shape),
                                                     ", but its host buffer has shape ", ToString(shard.shape)));
    }
  }
  if (spec.dtype == DType::kString) return absl::OkStatus();  // the workers look at them
  ASSIGN_OR_RETURN(int64_t size, HostBufferSize(spec.dtype, shard));
  if (size != shard.buffer->size()) {
    return absl::InvalidArgumentError(absl::StrCat("a host buffer for ", ToString(spec.dtype), ToString(shard.shape),
                                                   " must have ", size, " bytes, but has ", shard.buffer->size()));
  }
  return absl::OkStatus();
}

absl::Status CheckShards(const ArraySpec& spec, const std::vector<HostShard>& shards) {
  if (HostElementSize(spec.dtype) == 0 && spec.dtype != DType::kString) {
    return absl::InvalidArgumentError(absl::StrCat("arrays of ", ToString(spec.dtype), " have no bytes"));
  }
  RETURN_IF_ERROR(CheckMemoryKind(spec.sharding->memory_kind()));
  std::vector<bool> filled(spec.sharding->devices().size(), false);
  for (const HostShard& shard : shards) RETURN_IF_ERROR(CheckShard(spec, shard, filled));
  const auto missing = std::find(filled.begin(), filled.end(), false);
  if (missing == filled.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no host buffer was given for shard ", missing - filled.begin(), " of ", filled.size()));
}

// Announces one buffer to each worker that has shards of it.
std::vector<Destination> BeginTransfers(cluster::Dispatcher& dispatcher, const ArraySpec& spec, const HostShard& host,
                                        const std::vector<ShardRef>& shards) {
  std::vector<std::pair<cluster::WorkerRef, worker::BeginHostTransfer>> begins;
  for (int64_t index : host.shard_indices) {
    const cluster::WorkerRef& worker = shards[index]->worker();
    auto found = std::find_if(begins.begin(), begins.end(), [&](const auto& begin) { return begin.first == worker; });
    if (found == begins.end()) found = begins.insert(begins.end(), {worker, worker::BeginHostTransfer()});
    SetTarget(*shards[index], *spec.sharding->devices()[index], spec, found->second.add_targets());
  }
  std::vector<Destination> destinations;
  for (auto& [worker, begin] : begins) {
    const uint64_t transfer = dispatcher.NewNames();
    begin.set_transfer(transfer);
    begin.set_size(spec.dtype == DType::kString ? -1 : host.buffer->size());
    begin.set_element_type(static_cast<int>(spec.dtype));
    begin.mutable_dims()->Add(host.shape.begin(), host.shape.end());
    if (host.byte_strides.has_value()) {
      begin.mutable_byte_strides()->Add(host.byte_strides->begin(), host.byte_strides->end());
    }
    cluster::Outgoing outgoing;
    outgoing.command.mutable_begin_host_transfer()->Swap(&begin);
    dispatcher.Send(worker, std::move(outgoing));
    destinations.push_back({worker, transfer});
  }
  return destinations;
}

void SendPiece(const std::vector<Destination>& destinations, int64_t offset, const transport::Buffer& piece,
               absl::AnyInvocable<void()> consumed) {
  struct Join {
    std::atomic<size_t> remaining;
    absl::AnyInvocable<void()> consumed;
  };
  auto join = std::make_shared<Join>();
  join->remaining = destinations.size();
  join->consumed = std::move(consumed);
  for (const Destination& destination : destinations) {
    cluster::Outgoing outgoing;
    worker::HostTransferData* data = outgoing.command.mutable_host_transfer_data();
    data->set_transfer(destination.transfer);
    data->set_offset(offset);
    outgoing.payload = piece;
    destination.worker->Send(std::move(outgoing));
  }
  for (const Destination& destination : destinations) {
    destination.worker->OnQueueBelow(kMaxQueuedBytes, [join] {
      if (join->remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) join->consumed();
    });
  }
}

void AbortTransfers(const std::vector<Destination>& destinations, const absl::Status& status) {
  for (const Destination& destination : destinations) {
    cluster::Outgoing outgoing;
    worker::AbortHostTransfer* abort = outgoing.command.mutable_abort_host_transfer();
    abort->set_transfer(destination.transfer);
    *abort->mutable_status() = StatusToProto(status);
    destination.worker->Send(std::move(outgoing));
  }
}

// Of a transfer whose size the workers do not know.
void EndTransfers(const std::vector<Destination>& destinations, int64_t size) {
  for (const Destination& destination : destinations) {
    cluster::Outgoing outgoing;
    worker::HostTransferData* data = outgoing.command.mutable_host_transfer_data();
    data->set_transfer(destination.transfer);
    data->set_offset(size);
    data->set_last(true);
    destination.worker->Send(std::move(outgoing));
  }
}

HostBuffer::Consumer SendTo(std::vector<Destination> to, bool is_sized) {
  auto destinations = std::make_shared<const std::vector<Destination>>(std::move(to));
  HostBuffer::Consumer consumer;
  auto sent = std::make_shared<int64_t>(0);  // calls come one at a time
  consumer.piece = [destinations, sent](int64_t offset, transport::Buffer piece, absl::AnyInvocable<void()> consumed) {
    *sent += static_cast<int64_t>(piece.size());
    // To a worker, data after the last byte of a transfer are an error, even if there are none.
    if (piece.empty()) return consumed();
    SendPiece(*destinations, offset, piece, std::move(consumed));
  };
  consumer.finished = [destinations, sent, is_sized](const absl::Status& status) {
    if (!status.ok()) {
      AbortTransfers(*destinations, status);
    } else if (!is_sized) {
      EndTransfers(*destinations, *sent);
    }
  };
  return consumer;
}

// For an array that has failed already: whoever sends the bytes must not have to wait.
HostBuffer::Consumer Discard() {
  HostBuffer::Consumer consumer;
  consumer.piece = [](int64_t, transport::Buffer, absl::AnyInvocable<void()> consumed) { consumed(); };
  consumer.finished = [](const absl::Status&) {};
  return consumer;
}

}  // namespace

absl::StatusOr<ArrayRef> TransferHostShards(const cluster::Cluster& cluster, ArraySpec spec,
                                            std::vector<HostShard> host_shards) {
  RETURN_IF_ERROR(CheckShards(spec, host_shards));
  const DeviceList& devices = spec.sharding->devices();
  std::vector<cluster::WorkerRef> workers;
  for (const Device* device : devices) workers.push_back(cluster.worker(device->slice, device->host));
  const auto lost = std::find_if(workers.begin(), workers.end(), [](const auto& worker) { return worker->lost(); });
  if (lost != workers.end()) {
    for (const HostShard& host : host_shards) host.buffer->Attach(Discard());
    return std::make_shared<Array>(std::move(spec), (*lost)->status());
  }
  const std::shared_ptr<cluster::Dispatcher>& dispatcher = cluster.dispatcher();
  const uint64_t first_buffer = dispatcher->NewNames(static_cast<int64_t>(devices.size()));
  std::vector<ShardRef> shards;
  for (size_t k = 0; k < devices.size(); ++k) {
    shards.push_back(std::make_shared<Shard>(dispatcher, std::move(workers[k]), first_buffer + k));
  }
  for (const HostShard& host : host_shards) {
    host.buffer->Attach(SendTo(BeginTransfers(*dispatcher, spec, host, shards), spec.dtype != DType::kString));
  }
  return std::make_shared<Array>(std::move(spec), std::move(shards));
}

}  // namespace openpathways::ifrt
