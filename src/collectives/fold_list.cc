#include "collectives/fold_list.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace openpathways::collectives {
namespace {

// Small enough that a partial and a result together stay in the first-level cache, and a multiple of every element
// size.
constexpr size_t kCacheBlockBytes = 8 << 10;

StridedFold::Sources Advanced(const StridedFold::Sources& bases, size_t offset) {
  StridedFold::Sources result = bases;
  for (const std::byte*& base : result) {
    if (base != nullptr) base += offset;
  }
  return result;
}

// One block: `local_offset` in the locals, `offset` in sources and targets.
void FoldBlock(const StridedFold& fold, size_t local_offset, size_t offset, size_t bytes) {
  std::byte* const target = fold.targets[0] + offset;
  StridedFold::Sources locals = Advanced(fold.locals, local_offset);
  if (fold.sources.empty()) {
    fold.fold(target, locals.data(), locals.size(), bytes);
  } else {
    StridedFold::Sources sources = Advanced(fold.sources, offset);
    alignas(64) std::byte partial[kCacheBlockBytes];
    if (auto self = std::find(sources.begin(), sources.end(), nullptr); self != sources.end()) {
      if (locals.size() == 1) {
        *self = locals[0];
      } else {
        fold.fold(partial, locals.data(), locals.size(), bytes);
        *self = partial;
      }
    }
    fold.fold(target, sources.data(), sources.size(), bytes);
  }
  for (size_t t = 1; t < fold.targets.size(); ++t) std::memcpy(fold.targets[t] + offset, target, bytes);
}

// Bytes [begin, end) of each of the runs [first_run, last_run).
struct Piece {
  size_t fold;
  int64_t first_run, last_run;
  size_t begin, end;
};

void RunPiece(const StridedFold& fold, const Piece& piece) {
  for (int64_t run = piece.first_run; run < piece.last_run; ++run) {
    for (size_t begin = piece.begin; begin < piece.end; begin += kCacheBlockBytes) {
      FoldBlock(fold, run * fold.local_stride + begin, run * fold.run_bytes + begin,
                std::min(kCacheBlockBytes, piece.end - begin));
    }
  }
}

void Split(const StridedFold& fold, size_t index, std::vector<Piece>& pieces) {
  const int64_t runs_per_piece = std::max<int64_t>(1, kWorkBlockBytes / fold.run_bytes);
  const size_t bytes_per_piece = std::min(fold.run_bytes, kWorkBlockBytes);
  for (int64_t run = 0; run < fold.runs; run += runs_per_piece) {
    for (size_t begin = 0; begin < fold.run_bytes; begin += bytes_per_piece) {
      pieces.push_back({index, run, std::min(run + runs_per_piece, fold.runs), begin,
                        std::min(begin + bytes_per_piece, fold.run_bytes)});
    }
  }
}

}  // namespace

void FoldList::Add(StridedFold fold) {
  if (fold.runs == 0 || fold.run_bytes == 0) return;
  if (fold.local_stride == fold.run_bytes || fold.locals.empty()) {
    fold.run_bytes *= fold.runs;
    fold.runs = 1;
  }
  bytes_ += fold.runs * fold.run_bytes * (fold.locals.size() + fold.sources.size() + fold.targets.size());
  folds_.push_back(std::move(fold));
}

Work FoldList::ToWork(absl::AnyInvocable<void()> finish) && {
  Work work;
  work.bytes = bytes_;
  work.finish = std::move(finish);
  if (work.bytes <= kInlineWorkBytes) {
    work.num_blocks = 1;
    work.run_block = [folds = std::move(folds_)](size_t) {
      ScopedIeeeMode ieee;
      for (const StridedFold& fold : folds) RunPiece(fold, {0, 0, fold.runs, 0, fold.run_bytes});
    };
    return work;
  }
  std::vector<Piece> pieces;
  for (size_t i = 0; i < folds_.size(); ++i) Split(folds_[i], i, pieces);
  work.num_blocks = pieces.size();
  work.run_block = [folds = std::move(folds_), pieces = std::move(pieces)](size_t block) {
    ScopedIeeeMode ieee;
    RunPiece(folds[pieces[block].fold], pieces[block]);
  };
  return work;
}

}  // namespace openpathways::collectives
