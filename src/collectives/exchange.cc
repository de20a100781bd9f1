// All-gather, all-to-all, collective-permute and collective-broadcast: one message for each pair of workers that has
// something to say, packed from the blocks of blocks.h and unpacked as it arrives.
#include <deque>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collectives/algorithm.h"
#include "collectives/blocks.h"
#include "collectives/copy.h"

namespace openpathways::collectives {
namespace {

class Exchange : public Algorithm {
 public:
  explicit Exchange(Context context) : Algorithm(std::move(context), 1), incoming_(group().num_workers()) {
    for (int i = 0; i < num_peers(); ++i) {
      incoming_[peer(i)] = BlocksBetween(instruction(), group(), peer(i), group().self);
      if (incoming_[peer(i)].payload_bytes > 0) ++awaited_;
    }
  }

  absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) override {
    RETURN_IF_ERROR(CheckPayload(worker, payload, incoming_[worker].payload_bytes));
    if (payload.empty()) return absl::OkStatus();  // not awaited
    arrived_.push_back({worker, std::move(payload)});
    return absl::OkStatus();
  }

  absl::StatusOr<Step> Next() override {
    // Peers wait for what we send, so that goes first.
    while (sent_ < num_peers()) {
      BlockList list = BlocksBetween(instruction(), group(), group().self, peer(sent_));
      if (list.payload_bytes > 0) return SendTo(list);
      ++sent_;
    }
    if (!copied_local_) {
      copied_local_ = true;
      return Step::Run(CopyLocal());
    }
    if (!arrived_.empty()) return Step::Run(UnpackNext());
    return awaited_ == 0 ? Step::Done() : Step::Wait();
  }

 private:
  absl::StatusOr<Step> SendTo(const BlockList& list) {
    ASSIGN_OR_RETURN(transport::Buffer payload, link().Allocate(list.payload_bytes));
    CopyList copies;
    for (const Block& block : list.blocks) {
      copies.Add({.target = payload.data() + block.payload_offset,
                  .source = local_of(block.source).operands[block.operand],
                  .runs = block.runs,
                  .run_bits = block.run_bits,
                  .target_stride = block.run_bits,
                  .source_offset = block.offset,
                  .source_stride = block.stride});
    }
    const int first = sent_;
    sent_ = SendsSameToAll(instruction()) ? num_peers() : first + 1;
    return Step::Run(std::move(copies).ToWork([this, first, last = sent_, payload = std::move(payload)] {
      for (int i = first; i < last; ++i) link().Send(group().workers[peer(i)], 0, payload);
    }));
  }

  Work CopyLocal() {
    CopyList copies;
    for (const Block& block : BlocksBetween(instruction(), group(), group().self, group().self).blocks) {
      AddToTargets(block, local_of(block.source).operands[block.operand], block.offset, block.stride, copies);
    }
    if (instruction().kind == hlo::CollectiveDescriptor::COLLECTIVE_PERMUTE) AddZeros(copies);
    return std::move(copies).ToWork(nullptr);
  }

  void AddToTargets(const Block& block, const std::byte* source, int64_t source_offset, int64_t source_stride,
                    CopyList& copies) const {
    for (const Block::Target& target : block.targets) {
      copies.Add({.target = local_of(target.member).results[target.result],
                  .source = source,
                  .runs = block.runs,
                  .run_bits = block.run_bits,
                  .target_offset = target.offset,
                  .target_stride = target.stride,
                  .source_offset = source_offset,
                  .source_stride = source_stride});
    }
  }

  // For devices that are nobody's target.
  void AddZeros(CopyList& copies) const {
    std::vector<bool> is_target(group().size());
    for (const Instruction::Pair& pair : instruction().pairs) is_target[pair.target] = true;
    for (int member : group().local_members()) {
      if (is_target[member]) continue;
      for (size_t k = 0; k < instruction().results.size(); ++k) {
        copies.AddWhole(local_of(member).results[k], nullptr, instruction().results[k].bytes);
      }
    }
  }

  Work UnpackNext() {
    auto [worker, payload] = std::move(arrived_.front());
    arrived_.pop_front();
    --awaited_;
    CopyList copies;
    for (const Block& block : incoming_[worker].blocks) {
      AddToTargets(block, payload.data() + block.payload_offset, 0, block.run_bits, copies);
    }
    // The payload is given back as soon as it has been read.
    return std::move(copies).ToWork([payload = std::move(payload)]() mutable { payload = transport::Buffer(); });
  }

  std::vector<BlockList> incoming_;  // per worker
  int sent_ = 0;                     // peers that we are through with
  bool copied_local_ = false;
  int awaited_ = 0;  // messages not yet unpacked
  std::deque<std::pair<int, transport::Buffer>> arrived_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeExchange(Algorithm::Context context) {
  return std::make_unique<Exchange>(std::move(context));
}

}  // namespace openpathways::collectives
