// All-reduce. Three algorithms, with the same order of combination and so the same results:
//
// Direct, for small arrays of two workers: every worker sends the partial result of its devices to every other one and
// combines what it gets. One hop.
//
// Gathered, for small arrays of more workers: one of them, in turns, gets the partial results, combines them, and sends
// the result to all. Two hops, but 2 (n - 1) messages instead of n (n - 1): handling a message costs more than its way.
//
// Scattered, for big ones: the operands, laid end to end, are cut in one part for each worker. Step 0: each worker
// sends the partial result for part p to worker p, which combines them. Step 1: it sends the result to all. Every byte
// crosses each link twice at most, however many workers there are.
//
// If all members are on this worker, either is a single pass from operands to results.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/algorithm.h"
#include "collectives/blocks.h"
#include "collectives/copy.h"
#include "collectives/fold_list.h"

namespace openpathways::collectives {
namespace {

// Below, the number of messages counts, above, that of bytes.
constexpr size_t kMaxSmallBytes = 32 << 10;
// With more workers, a second hop costs less than sending everything to everyone.
constexpr int kMaxDirectWorkers = 2;

// The operands laid end to end, each from a multiple of kPayloadAlignment on.
class Concatenation {
 public:
  // A piece of one operand inside a range of the concatenation.
  struct Piece {
    int operand;
    size_t offset;    // in the operand
    size_t in_range;  // from the beginning of the range
    size_t bytes;
  };

  explicit Concatenation(const Instruction& instruction) {
    for (const ArrayShape& operand : instruction.operands) {
      begins_.push_back(size_);
      sizes_.push_back(operand.bytes);
      size_ += AlignPayload(operand.bytes);
    }
  }
  size_t size() const { return size_; }

  std::vector<Piece> Pieces(size_t begin, size_t end) const {
    std::vector<Piece> pieces;
    for (size_t k = 0; k < begins_.size(); ++k) {
      const size_t from = std::max(begin, begins_[k]);
      const size_t to = std::min(end, begins_[k] + sizes_[k]);
      if (from < to) pieces.push_back({static_cast<int>(k), from - begins_[k], from - begin, to - from});
    }
    return pieces;
  }

 private:
  std::vector<size_t> begins_, sizes_;
  size_t size_ = 0;
};

class AllReduce : public Algorithm {
 public:
  AllReduce(Context context, uint32_t num_steps)
      : Algorithm(std::move(context), num_steps), concatenation_(instruction()) {}

 protected:
  const Concatenation& concatenation() const { return concatenation_; }

  // The fold of one piece over the local operands, without sources and targets.
  StridedFold LocalFold(const Concatenation::Piece& piece) const {
    StridedFold fold;
    fold.fold = instruction().folds[piece.operand];
    fold.run_bytes = fold.local_stride = piece.bytes;
    for (const LocalArrays& arrays : local()) fold.locals.push_back(arrays.operands[piece.operand] + piece.offset);
    return fold;
  }
  void AddResults(const Concatenation::Piece& piece, StridedFold& fold) const {
    for (const LocalArrays& arrays : local()) fold.targets.push_back(arrays.results[piece.operand] + piece.offset);
  }
  // Partial results of this worker's devices.
  FoldList Partials(size_t begin, size_t end, const transport::Buffer& target) const {
    FoldList folds;
    for (const Concatenation::Piece& piece : concatenation_.Pieces(begin, end)) {
      StridedFold fold = LocalFold(piece);
      fold.targets.push_back(target.data() + piece.in_range);
      folds.Add(std::move(fold));
    }
    return folds;
  }
  // The results of this worker's devices from the partial results of all workers, in their order; also to `target`,
  // unless that is empty.
  FoldList FoldWorkers(const std::vector<transport::Buffer>& partials, const transport::Buffer& target) const {
    FoldList folds;
    for (const Concatenation::Piece& piece : concatenation_.Pieces(0, concatenation_.size())) {
      StridedFold fold;
      fold.fold = instruction().folds[piece.operand];
      fold.run_bytes = piece.bytes;
      for (const transport::Buffer& partial : partials) fold.sources.push_back(partial.data() + piece.in_range);
      if (!target.empty()) fold.targets.push_back(target.data() + piece.in_range);
      AddResults(piece, fold);
      folds.Add(std::move(fold));
    }
    return folds;
  }
  // From a payload with the results of a range to all devices of this worker.
  Work CopyResults(size_t begin, size_t end, transport::Buffer payload) const {
    CopyList copies;
    for (const Concatenation::Piece& piece : concatenation_.Pieces(begin, end)) {
      for (const LocalArrays& arrays : local()) {
        copies.AddWhole(arrays.results[piece.operand] + piece.offset, payload.data() + piece.in_range, piece.bytes);
      }
    }
    return std::move(copies).ToWork([payload = std::move(payload)]() mutable { payload = transport::Buffer(); });
  }

 private:
  Concatenation concatenation_;
};

class DirectAllReduce : public AllReduce {
 public:
  explicit DirectAllReduce(Context context) : AllReduce(std::move(context), 1), partials_(group().num_workers()) {}

  absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) override {
    RETURN_IF_ERROR(CheckPayload(worker, payload, concatenation().size()));
    partials_[worker] = std::move(payload);
    ++arrived_;
    return absl::OkStatus();
  }

  absl::StatusOr<Step> Next() override {
    if (done_ || concatenation().size() == 0) return Step::Done();
    if (num_peers() == 0) {
      done_ = true;
      return Step::Run(CombineLocal());
    }
    transport::Buffer& own = partials_[group().self];
    if (own.empty()) {
      ASSIGN_OR_RETURN(own, link().Allocate(concatenation().size()));
      return Step::Run(Partials(0, concatenation().size(), own).ToWork([this] {
        for (int i = 0; i < num_peers(); ++i) link().Send(group().workers[peer(i)], 0, partials_[group().self]);
      }));
    }
    if (arrived_ < num_peers()) return Step::Wait();
    done_ = true;
    return Step::Run(FoldWorkers(partials_, {}).ToWork([this] { partials_.clear(); }));
  }

 private:
  Work CombineLocal() const {
    FoldList folds;
    for (const Concatenation::Piece& piece : concatenation().Pieces(0, concatenation().size())) {
      StridedFold fold = LocalFold(piece);
      AddResults(piece, fold);
      folds.Add(std::move(fold));
    }
    return std::move(folds).ToWork(nullptr);
  }

  std::vector<transport::Buffer> partials_;  // per worker, this one's included
  int arrived_ = 0;
  bool done_ = false;
};

class GatheredAllReduce : public AllReduce {
 public:
  explicit GatheredAllReduce(Context context)
      : AllReduce(std::move(context), 2),
        root_(static_cast<int>(link().turn() % static_cast<uint64_t>(group().num_workers()))),
        partials_(group().num_workers()) {}

  absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) override {
    RETURN_IF_ERROR(CheckPayload(worker, payload, concatenation().size()));
    if (is_root() != (step == 0) || (step == 1 && worker != root_)) {
      return absl::InternalError(absl::StrCat("step ", step, " of ", instruction().name(), " came from worker ",
                                              group().workers[worker], ", which has another part in it"));
    }
    if (step == 0) {
      partials_[worker] = std::move(payload);
      ++arrived_;
    } else {
      result_ = std::move(payload);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Step> Next() override {
    if (done_) return Step::Done();
    if (partials_[group().self].empty()) return MakePartial();
    if (is_root() ? arrived_ < num_peers() : result_.empty()) return Step::Wait();
    done_ = true;
    if (is_root()) return CombineWorkers();
    return Step::Run(CopyResults(0, concatenation().size(), std::move(result_)));
  }

 private:
  bool is_root() const { return group().self == root_; }

  absl::StatusOr<Step> MakePartial() {
    transport::Buffer& own = partials_[group().self];
    ASSIGN_OR_RETURN(own, link().Allocate(concatenation().size()));
    return Step::Run(Partials(0, concatenation().size(), own).ToWork([this] {
      if (!is_root()) link().Send(group().workers[root_], 0, partials_[group().self]);
    }));
  }

  absl::StatusOr<Step> CombineWorkers() {
    ASSIGN_OR_RETURN(transport::Buffer payload, link().Allocate(concatenation().size()));
    return Step::Run(FoldWorkers(partials_, payload).ToWork([this, payload] {
      partials_.clear();
      for (int i = 0; i < num_peers(); ++i) link().Send(group().workers[peer(i)], 1, payload);
    }));
  }

  const int root_;                           // position in the group's workers
  std::vector<transport::Buffer> partials_;  // per worker; of others on the root only
  int arrived_ = 0;
  transport::Buffer result_;  // of the root
  bool done_ = false;
};

class ScatteredAllReduce : public AllReduce {
 public:
  explicit ScatteredAllReduce(Context context)
      : AllReduce(std::move(context), 2), partials_(group().num_workers()), awaited_results_(0) {
    for (int i = 0; i < num_peers(); ++i) {
      if (part_size(peer(i)) > 0) ++awaited_results_;
    }
    awaited_partials_ = part_size(group().self) > 0 ? num_peers() : 0;
  }

  absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) override {
    if (step == 0) {
      RETURN_IF_ERROR(CheckPayload(worker, payload, part_size(group().self)));
      partials_[worker] = std::move(payload);
      --awaited_partials_;
    } else {
      RETURN_IF_ERROR(CheckPayload(worker, payload, part_size(worker)));
      if (payload.empty()) return absl::OkStatus();  // not awaited
      results_.push_back({worker, std::move(payload)});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Step> Next() override {
    while (sent_ < num_peers()) {
      const int part = peer(sent_++);
      if (part_size(part) > 0) return SendPartial(part);
    }
    // Others wait for this worker's part; copies of what came already can be made later.
    if (!combined_ && awaited_partials_ == 0) {
      combined_ = true;
      if (part_size(group().self) > 0) return CombineOwnPart();
    }
    if (!results_.empty()) return Step::Run(CopyNextResult());
    return combined_ && awaited_results_ == 0 ? Step::Done() : Step::Wait();
  }

 private:
  // Parts are cut at multiples of kPayloadAlignment, so an element is never split.
  size_t part_begin(int part) const {
    const size_t units = concatenation().size() / kPayloadAlignment;
    return units * static_cast<size_t>(part) / static_cast<size_t>(group().num_workers()) * kPayloadAlignment;
  }
  size_t part_size(int part) const { return part_begin(part + 1) - part_begin(part); }

  absl::StatusOr<Step> SendPartial(int part) {
    ASSIGN_OR_RETURN(transport::Buffer payload, link().Allocate(part_size(part)));
    FoldList folds = Partials(part_begin(part), part_begin(part + 1), payload);
    return Step::Run(std::move(folds).ToWork([this, part, payload]() mutable {
      link().Send(group().workers[part], 0, payload);
      payload = transport::Buffer();
    }));
  }

  absl::StatusOr<Step> CombineOwnPart() {
    const int self = group().self;
    ASSIGN_OR_RETURN(transport::Buffer payload, link().Allocate(part_size(self)));
    FoldList folds;
    for (const Concatenation::Piece& piece : concatenation().Pieces(part_begin(self), part_begin(self + 1))) {
      StridedFold fold = LocalFold(piece);
      for (int worker = 0; worker < group().num_workers(); ++worker) {
        fold.sources.push_back(worker == self ? nullptr : partials_[worker].data() + piece.in_range);
      }
      fold.targets.push_back(payload.data() + piece.in_range);
      AddResults(piece, fold);
      folds.Add(std::move(fold));
    }
    return Step::Run(std::move(folds).ToWork([this, payload]() mutable {
      partials_.clear();
      for (int i = 0; i < num_peers(); ++i) link().Send(group().workers[peer(i)], 1, payload);
      payload = transport::Buffer();
    }));
  }

  Work CopyNextResult() {
    auto [part, payload] = std::move(results_.front());
    results_.pop_front();
    --awaited_results_;
    return CopyResults(part_begin(part), part_begin(part + 1), std::move(payload));
  }

  std::vector<transport::Buffer> partials_;  // of this worker's part, per other worker
  int awaited_partials_;
  int sent_ = 0;
  bool combined_ = false;
  int awaited_results_;  // parts of others not yet copied
  std::deque<std::pair<int, transport::Buffer>> results_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeAllReduce(Algorithm::Context context) {
  const size_t bytes = Concatenation(*context.instruction).size();
  const int num_workers = context.group->num_workers();
  const bool direct = num_workers == 1 || bytes == 0 || (num_workers <= kMaxDirectWorkers && bytes <= kMaxSmallBytes);
  if (direct) return std::make_unique<DirectAllReduce>(std::move(context));
  if (bytes <= kMaxSmallBytes) return std::make_unique<GatheredAllReduce>(std::move(context));
  return std::make_unique<ScatteredAllReduce>(std::move(context));
}

}  // namespace openpathways::collectives
