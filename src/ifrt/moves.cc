#include "ifrt/moves.h"

#include <memory>

namespace openpathways::ifrt {

void SetTarget(const Shard& shard, const Device& device, const ArraySpec& spec, worker::Target* target) {
  target->set_buffer(shard.buffer());
  target->set_device(device.ordinal);
  target->set_memory_kind(spec.sharding->memory_kind());
  target->mutable_minor_to_major()->Add(spec.minor_to_major.begin(), spec.minor_to_major.end());
}

ShardRef Moves::Add(const ShardRef& source, cluster::WorkerRef to, const Device& device, const ArraySpec& spec,
                    const Shape& shape) {
  cluster::Dispatcher& dispatcher = *cluster_.dispatcher();
  ShardRef target = std::make_shared<Shard>(cluster_.dispatcher(), std::move(to), dispatcher.NewNames());
  Batch& batch = BatchFor(source->worker(), target->worker());
  if (source->worker() == target->worker()) {
    worker::CopyBuffers::Copy* copy = batch.copies.add_copies();
    copy->set_source(source->buffer());
    SetTarget(*target, device, spec, copy->mutable_target());
  } else {
    const uint64_t transfer = dispatcher.NewNames();
    worker::SendBuffers::Send* send = batch.sends.add_sends();
    send->set_transfer(transfer);
    send->set_source(source->buffer());
    worker::ReceiveBuffers::Receive* receive = batch.receives.add_receives();
    receive->set_transfer(transfer);
    SetTarget(*target, device, spec, receive->mutable_target());
    receive->set_element_type(static_cast<int>(spec.dtype));
    receive->mutable_dims()->Add(shape.begin(), shape.end());
  }
  return target;
}

void Moves::Send() {
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

// Each end names the other, whose address may become known only later.
cluster::Operation Moves::BetweenWorkers(Batch& batch) {
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

Moves::Batch& Moves::BatchFor(const cluster::WorkerRef& from, const cluster::WorkerRef& to) {
  auto [found, is_new] = index_.try_emplace({from.get(), to.get()}, batches_.size());
  if (is_new) {
    batches_.emplace_back();
    batches_.back().from = from;
    batches_.back().to = to;
  }
  return batches_[found->second];
}

}  // namespace openpathways::ifrt
