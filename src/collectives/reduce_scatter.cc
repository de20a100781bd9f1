// Reduce-scatter: every worker combines its devices' operands piece by piece, sends each other worker the partial
// results for the pieces of that worker's devices, and combines what it gets for its own. One hop; only what the
// receiver needs is sent.
#include <utility>
#include <vector>

#include "base/status.h"
#include "collectives/algorithm.h"
#include "collectives/blocks.h"
#include "collectives/fold_list.h"

namespace openpathways::collectives {
namespace {

class ReduceScatter : public Algorithm {
 public:
  explicit ReduceScatter(Context context) : Algorithm(std::move(context), 1), partials_(group().num_workers()) {
    for (const ArrayShape& result : instruction().results) {
      offsets_.push_back(member_bytes_);
      member_bytes_ += AlignPayload(result.bytes);
    }
  }

  absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) override {
    RETURN_IF_ERROR(CheckPayload(worker, payload, payload_size(group().self)));
    partials_[worker] = std::move(payload);
    ++arrived_;
    return absl::OkStatus();
  }

  absl::StatusOr<Step> Next() override {
    if (done_ || member_bytes_ == 0) return Step::Done();
    if (sent_ < num_peers()) return SendPartials(peer(sent_++));
    if (arrived_ < num_peers()) return Step::Wait();
    done_ = true;
    return Step::Run(Combine());
  }

 private:
  size_t payload_size(int worker) const { return group().members_of[worker].size() * member_bytes_; }

  // The fold of a member's piece of operand k over the local operands, without sources and targets.
  StridedFold LocalFold(int member, size_t k) const {
    const ArrayShape& operand = instruction().operands[k];
    const ArrayShape& result = instruction().results[k];
    const int64_t dimension = instruction().dimension;
    const int64_t inner_bits = operand.inner(dimension) * operand.type->bits;
    StridedFold fold;
    fold.fold = instruction().folds[k];
    fold.runs = operand.outer(dimension);
    fold.run_bytes = result.dims[dimension] * inner_bits / 8;
    fold.local_stride = operand.dims[dimension] * inner_bits / 8;
    if (group().size() == 1) {  // one piece; a packed type need not fill the last byte of a run
      fold.runs = 1;
      fold.run_bytes = fold.local_stride = operand.bytes;
    }
    for (const LocalArrays& arrays : local()) fold.locals.push_back(arrays.operands[k] + member * fold.run_bytes);
    return fold;
  }

  absl::StatusOr<Step> SendPartials(int worker) {
    ASSIGN_OR_RETURN(transport::Buffer payload, link().Allocate(payload_size(worker)));
    FoldList folds;
    for (int member : group().members_of[worker]) {
      for (size_t k = 0; k < offsets_.size(); ++k) {
        StridedFold fold = LocalFold(member, k);
        fold.targets.push_back(payload.data() + group().members[member].local * member_bytes_ + offsets_[k]);
        folds.Add(std::move(fold));
      }
    }
    return Step::Run(std::move(folds).ToWork([this, worker, payload]() mutable {
      link().Send(group().workers[worker], 0, payload);
      payload = transport::Buffer();
    }));
  }

  Work Combine() {
    FoldList folds;
    for (int member : group().local_members()) {
      for (size_t k = 0; k < offsets_.size(); ++k) {
        StridedFold fold = LocalFold(member, k);
        const size_t offset = group().members[member].local * member_bytes_ + offsets_[k];
        for (int worker = 0; worker < group().num_workers() && num_peers() > 0; ++worker) {
          fold.sources.push_back(worker == group().self ? nullptr : partials_[worker].data() + offset);
        }
        fold.targets.push_back(local_of(member).results[k]);
        folds.Add(std::move(fold));
      }
    }
    return std::move(folds).ToWork([this] { partials_.clear(); });
  }

  std::vector<size_t> offsets_;  // of each result in a member's share of a payload
  size_t member_bytes_ = 0;
  std::vector<transport::Buffer> partials_;  // per other worker
  int sent_ = 0;
  int arrived_ = 0;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Algorithm> MakeReduceScatter(Algorithm::Context context) {
  return std::make_unique<ReduceScatter>(std::move(context));
}

}  // namespace openpathways::collectives
