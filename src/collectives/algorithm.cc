#include "collectives/algorithm.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace openpathways::collectives {

absl::StatusOr<transport::Buffer> Link::Allocate(size_t size) const {
  if (size > kMaxTailBytes) {
    absl::StatusOr<transport::Buffer> buffer = network_->Allocate(size);
    if (buffer.ok()) return buffer;
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a message of ", size, " bytes: ", buffer.status().message()));
  }
  // It will be copied into the header of the message.
  const size_t rounded = (size + 63) / 64 * 64;
  std::shared_ptr<void> memory(std::aligned_alloc(64, rounded == 0 ? 64 : rounded), std::free);
  if (memory == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a message of ", size, " bytes"));
  auto* data = static_cast<std::byte*>(memory.get());
  return transport::Buffer(std::move(memory), data, size);
}

uint64_t Link::turn() const { return launch_.launch + collective_.repetition + collective_.instruction; }

void Link::Send(WorkerId peer, uint32_t step, const transport::Buffer& payload) const {
  if (payload.size() > kMaxTailBytes) {
    network_->Send(peer, EncodeData(launch_, collective_, step, {}), payload);
    return;
  }
  const absl::string_view tail(reinterpret_cast<const char*>(payload.data()), payload.size());
  network_->Send(peer, EncodeData(launch_, collective_, step, tail), transport::Buffer());
}

absl::Status Algorithm::Receive(int worker, uint32_t step, transport::Buffer payload) {
  const size_t index = static_cast<size_t>(step) * group().num_workers() + worker;
  if (worker == group().self || index >= received_.size() || received_[index]) {
    return absl::InternalError(absl::StrCat("unexpected message of worker ", group().workers[worker], ", step ", step,
                                            ", for ", instruction().name()));
  }
  received_[index] = true;
  return Accept(worker, step, std::move(payload));
}

absl::Status Algorithm::CheckPayload(int worker, const transport::Buffer& payload, size_t expected) const {
  if (payload.size() == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("worker ", group().workers[worker], " sent ", payload.size(), " bytes, not ",
                                          expected, ", for ", instruction().name()));
}

std::unique_ptr<Algorithm> Algorithm::Create(Context context) {
  switch (context.instruction->kind) {
    case hlo::CollectiveDescriptor::ALL_REDUCE:
      return MakeAllReduce(std::move(context));
    case hlo::CollectiveDescriptor::REDUCE_SCATTER:
      return MakeReduceScatter(std::move(context));
    case hlo::CollectiveDescriptor::RAGGED_ALL_TO_ALL:
      return MakeRaggedAllToAll(std::move(context));
    default:
      return MakeExchange(std::move(context));
  }
}

}  // namespace openpathways::collectives
