#include "collectives/copy.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace openpathways::collectives {
namespace {

bool IsByteAligned(const StridedCopy& copy) {
  return (copy.run_bits | copy.target_offset | copy.source_offset) % 8 == 0 &&
         (copy.runs == 1 || (copy.target_stride | copy.source_stride) % 8 == 0);
}

// Packed elements have 2 or 4 bits; two bits divide every offset.
void CopyUnaligned(const StridedCopy& copy) {
  constexpr int64_t kStep = 2;
  const auto* source = reinterpret_cast<const uint8_t*>(copy.source);
  auto* target = reinterpret_cast<uint8_t*>(copy.target);
  for (int64_t run = 0; run < copy.runs; ++run) {
    const int64_t from = copy.source_offset + run * copy.source_stride;
    const int64_t to = copy.target_offset + run * copy.target_stride;
    for (int64_t bit = 0; bit < copy.run_bits; bit += kStep) {
      const int value = source == nullptr ? 0 : (source[(from + bit) / 8] >> ((from + bit) % 8)) & 3;
      uint8_t& cell = target[(to + bit) / 8];
      const int shift = static_cast<int>((to + bit) % 8);
      cell = static_cast<uint8_t>((cell & ~(3 << shift)) | (value << shift));
    }
  }
}

template <size_t kBytes>
void CopyFixedRuns(std::byte* target, int64_t target_stride, const std::byte* source, int64_t source_stride,
                   int64_t runs) {
  for (int64_t run = 0; run < runs; ++run) {
    std::memcpy(target + run * target_stride, source + run * source_stride, kBytes);
  }
}

void CopyAligned(const StridedCopy& copy) {
  std::byte* target = copy.target + copy.target_offset / 8;
  const size_t bytes = copy.run_bits / 8;
  const int64_t target_stride = copy.target_stride / 8;
  if (copy.source == nullptr) {
    for (int64_t run = 0; run < copy.runs; ++run) std::memset(target + run * target_stride, 0, bytes);
    return;
  }
  const std::byte* source = copy.source + copy.source_offset / 8;
  const int64_t source_stride = copy.source_stride / 8;
  switch (bytes) {  // a call of memcpy for each element of an inner dimension would dominate
    case 1:
      return CopyFixedRuns<1>(target, target_stride, source, source_stride, copy.runs);
    case 2:
      return CopyFixedRuns<2>(target, target_stride, source, source_stride, copy.runs);
    case 4:
      return CopyFixedRuns<4>(target, target_stride, source, source_stride, copy.runs);
    case 8:
      return CopyFixedRuns<8>(target, target_stride, source, source_stride, copy.runs);
    case 16:
      return CopyFixedRuns<16>(target, target_stride, source, source_stride, copy.runs);
    default:
      break;
  }
  for (int64_t run = 0; run < copy.runs; ++run) {
    std::memcpy(target + run * target_stride, source + run * source_stride, bytes);
  }
}

void Run(const StridedCopy& copy) {
  if (IsByteAligned(copy)) {
    CopyAligned(copy);
  } else {
    CopyUnaligned(copy);
  }
}

// Cuts a byte-aligned copy in pieces of about kWorkBlockBytes.
void Split(const StridedCopy& copy, std::vector<StridedCopy>& pieces) {
  constexpr int64_t kBlockBits = kWorkBlockBytes * 8;
  if (copy.run_bits * copy.runs <= kBlockBits) {
    pieces.push_back(copy);
    return;
  }
  const int64_t runs_per_piece = std::max<int64_t>(1, kBlockBits / copy.run_bits);
  const int64_t bits_per_piece = std::min(copy.run_bits, kBlockBits);
  for (int64_t run = 0; run < copy.runs; run += runs_per_piece) {
    for (int64_t bit = 0; bit < copy.run_bits; bit += bits_per_piece) {
      StridedCopy piece = copy;
      piece.runs = std::min(runs_per_piece, copy.runs - run);
      piece.run_bits = std::min(bits_per_piece, copy.run_bits - bit);
      piece.target_offset += run * copy.target_stride + bit;
      piece.source_offset += run * copy.source_stride + bit;
      pieces.push_back(piece);
    }
  }
}

}  // namespace

void CopyList::Add(StridedCopy copy) {
  if (copy.runs == 0 || copy.run_bits == 0) return;
  if (copy.runs > 1 && copy.target_stride == copy.run_bits &&
      (copy.source == nullptr || copy.source_stride == copy.run_bits)) {
    copy.run_bits *= copy.runs;
    copy.runs = 1;
  }
  unaligned_ |= !IsByteAligned(copy);
  bytes_ += (copy.runs * copy.run_bits + 7) / 8;
  copies_.push_back(copy);
}

void CopyList::AddWhole(std::byte* target, const std::byte* source, size_t bytes) {
  Add({.target = target, .source = source, .run_bits = static_cast<int64_t>(bytes) * 8});
}

Work CopyList::ToWork(absl::AnyInvocable<void()> finish) && {
  Work work;
  work.bytes = bytes_;
  work.finish = std::move(finish);
  if (unaligned_ || work.bytes <= kInlineWorkBytes) {
    work.num_blocks = 1;
    work.run_block = [copies = std::move(copies_)](size_t) {
      for (const StridedCopy& copy : copies) Run(copy);
    };
    return work;
  }
  std::vector<StridedCopy> pieces;
  for (const StridedCopy& copy : copies_) Split(copy, pieces);
  work.num_blocks = pieces.size();
  work.run_block = [pieces = std::move(pieces)](size_t block) { Run(pieces[block]); };
  return work;
}

}  // namespace openpathways::collectives
