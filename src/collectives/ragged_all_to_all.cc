// Ragged all-to-all: rows of the input (its outermost dimension) go to row offsets in the outputs of the other members.
//
// Operands: input, output (initial values), input offsets, send sizes, output offsets, receive sizes. The last four
// have k entries for each member m, at m*k: k ranges of rows for m. Output offsets are positions in the *receiver's*
// output. Receive sizes say nothing that the senders do not say as well, and are not read.
//
// One message for each pair of workers. Its payload, for every (sending member, receiving member, u < k) in that order:
//   table  int64 first row in the output, int64 rows
//   data   the rows of each range, each range from a multiple of 64 bytes on; the first behind the table
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/algorithm.h"
#include "collectives/blocks.h"
#include "collectives/copy.h"

namespace openpathways::collectives {
namespace {

enum Operand { kInput = 0, kOutput = 1, kInputOffsets = 2, kSendSizes = 3, kOutputOffsets = 4 };

struct Range {
  int source = 0;  // member
  int target = 0;  // member
  int64_t input_row = 0;
  int64_t output_row = 0;
  int64_t rows = 0;
};

// A row on the wire.
struct TableEntry {
  int64_t output_row;
  int64_t rows;
};

class RaggedAllToAll : public Algorithm {
 public:
  explicit RaggedAllToAll(Context context)
      : Algorithm(std::move(context), 1),
        updates_(instruction().operands[kInputOffsets].elements / group().size()),
        row_bits_(instruction().results[0].inner(0) * instruction().results[0].type->bits),
        awaited_(num_peers()) {}

  absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) override {
    arrived_.push_back({worker, std::move(payload)});
    return absl::OkStatus();
  }

  absl::StatusOr<Step> Next() override {
    if (sent_ < num_peers()) return SendTo(peer(sent_++));
    if (!initialized_) {
      initialized_ = true;
      return Step::Run(CopyInitialValues());
    }
    if (!copied_local_) {
      copied_local_ = true;
      return CopyLocal();
    }
    if (!arrived_.empty()) return UnpackNext();
    return awaited_ == 0 ? Step::Done() : Step::Wait();
  }

 private:
  int64_t Entry(int member, Operand operand, int64_t index) const {
    const std::byte* data = local_of(member).operands[operand];
    if (instruction().operands[operand].type->type == PrimitiveType::kS32) {
      int32_t value;
      std::memcpy(&value, data + index * sizeof(value), sizeof(value));
      return value;
    }
    int64_t value;
    std::memcpy(&value, data + index * sizeof(value), sizeof(value));
    return value;
  }

  static bool IsInside(int64_t begin, int64_t rows, int64_t limit) {
    return begin >= 0 && rows >= 0 && begin <= limit && rows <= limit - begin;
  }

  // What the local members send to those of a worker.
  absl::StatusOr<std::vector<Range>> RangesTo(int worker) const {
    std::vector<Range> ranges;
    const int64_t input_rows = instruction().operands[kInput].dims[0];
    const int64_t output_rows = instruction().results[0].dims[0];
    for (int source : group().local_members()) {
      for (int target : group().members_of[worker]) {
        for (int64_t u = 0; u < updates_; ++u) {
          const int64_t index = target * updates_ + u;
          const Range range{source, target, Entry(source, kInputOffsets, index), Entry(source, kOutputOffsets, index),
                            Entry(source, kSendSizes, index)};
          // Offsets of empty ranges mean nothing.
          if (range.rows != 0 && (!IsInside(range.input_row, range.rows, input_rows) ||
                                  !IsInside(range.output_row, range.rows, output_rows))) {
            return absl::InvalidArgumentError(
                absl::StrCat(instruction().name(), ": device ", group().members[source].device, " sends ", range.rows,
                             " rows from row ", range.input_row, " of ", input_rows, " to row ", range.output_row,
                             " of ", output_rows, " of device ", group().members[target].device));
          }
          ranges.push_back(range);
        }
      }
    }
    return ranges;
  }

  size_t RangeBytes(int64_t rows) const { return AlignPayload(static_cast<size_t>((rows * row_bits_ + 7) / 8)); }

  absl::StatusOr<Step> SendTo(int worker) {
    ASSIGN_OR_RETURN(std::vector<Range> ranges, RangesTo(worker));
    const size_t table_bytes = AlignPayload(ranges.size() * sizeof(TableEntry));
    size_t size = table_bytes;
    for (const Range& range : ranges) size += RangeBytes(range.rows);
    ASSIGN_OR_RETURN(transport::Buffer payload, link().Allocate(size));
    CopyList copies;
    size_t offset = table_bytes;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const TableEntry entry{ranges[i].output_row, ranges[i].rows};
      std::memcpy(payload.data() + i * sizeof(entry), &entry, sizeof(entry));
      copies.Add({.target = payload.data() + offset,
                  .source = local_of(ranges[i].source).operands[kInput],
                  .run_bits = ranges[i].rows * row_bits_,
                  .source_offset = ranges[i].input_row * row_bits_});
      offset += RangeBytes(ranges[i].rows);
    }
    return Step::Run(std::move(copies).ToWork([this, worker, payload]() mutable {
      link().Send(group().workers[worker], 0, payload);
      payload = transport::Buffer();
    }));
  }

  Work CopyInitialValues() const {
    CopyList copies;
    for (const LocalArrays& arrays : local()) {
      copies.AddWhole(arrays.results[0], arrays.operands[kOutput], instruction().results[0].bytes);
    }
    return std::move(copies).ToWork(nullptr);
  }

  absl::StatusOr<Step> CopyLocal() const {
    ASSIGN_OR_RETURN(std::vector<Range> ranges, RangesTo(group().self));
    CopyList copies;
    for (const Range& range : ranges) {
      copies.Add({.target = local_of(range.target).results[0],
                  .source = local_of(range.source).operands[kInput],
                  .run_bits = range.rows * row_bits_,
                  .target_offset = range.output_row * row_bits_,
                  .source_offset = range.input_row * row_bits_});
    }
    return Step::Run(std::move(copies).ToWork(nullptr));
  }

  absl::StatusOr<Step> UnpackNext() {
    auto [worker, payload] = std::move(arrived_.front());
    arrived_.pop_front();
    --awaited_;
    const absl::Status malformed = absl::InternalError(
        absl::StrCat("worker ", group().workers[worker], " sent a malformed message for ", instruction().name()));
    const size_t entries = group().members_of[worker].size() * group().local_members().size() * updates_;
    size_t offset = AlignPayload(entries * sizeof(TableEntry));
    if (payload.size() < offset) return malformed;
    CopyList copies;
    size_t index = 0;
    for (size_t i = 0; i < group().members_of[worker].size(); ++i) {
      for (int target : group().local_members()) {
        for (int64_t u = 0; u < updates_; ++u, ++index) {
          TableEntry entry;
          std::memcpy(&entry, payload.data() + index * sizeof(entry), sizeof(entry));
          if (entry.rows == 0) continue;
          if (!IsInside(entry.output_row, entry.rows, instruction().results[0].dims[0]) ||
              RangeBytes(entry.rows) > payload.size() - offset) {
            return malformed;
          }
          copies.Add({.target = local_of(target).results[0],
                      .source = payload.data() + offset,
                      .run_bits = entry.rows * row_bits_,
                      .target_offset = entry.output_row * row_bits_});
          offset += RangeBytes(entry.rows);
        }
      }
    }
    return Step::Run(
        std::move(copies).ToWork([payload = std::move(payload)]() mutable { payload = transport::Buffer(); }));
  }

  const int64_t updates_;  // ranges for each pair of members
  const int64_t row_bits_;
  int sent_ = 0;
  bool initialized_ = false;
  bool copied_local_ = false;
  int awaited_;  // messages not yet unpacked
  std::deque<std::pair<int, transport::Buffer>> arrived_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeRaggedAllToAll(Algorithm::Context context) {
  return std::make_unique<RaggedAllToAll>(std::move(context));
}

}  // namespace openpathways::collectives
