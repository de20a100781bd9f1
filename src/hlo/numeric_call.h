// The custom calls that stand for numerics which XLA's CPU compiler lacks: what their writer (rewrite_numerics.h) and
// their handlers (numerics/) agree on. Arrays are dense; their layouts are part of the contract.
#ifndef OPENPATHWAYS_HLO_NUMERIC_CALL_H_
#define OPENPATHWAYS_HLO_NUMERIC_CALL_H_

#include <array>
#include <cstdint>
#include <string>

namespace openpathways::hlo {

// LU decomposition with partial pivoting. Operand: matrices [..., m, n] of f32, f64, c64 or c128, each matrix
// column-major in memory. Results: L and U in one array like the operand; pivots [..., min(m, n)] s32, counted from 0;
// the row permutation [..., m] s32. No attributes.
inline constexpr char kLuTarget[] = "openpathways.lu";

// A matrix product whose rows or contracted elements come in groups of sizes that only the data tells. Element types:
// f32, f64, c64, c128, s32 or s64, the same for both factors and the result; group sizes s64. All in the order given
// here, row-major, where neighbouring letters may be several dimensions. Attributes: the fields of RaggedDot.
inline constexpr char kRaggedDotTarget[] = "openpathways.ragged_dot";

struct RaggedDot {
  enum Mode : int64_t {
    // Rows of group g are multiplied by the g-th right factor:
    // [batch, prefix, ragged, suffix, left] x [batch, groups, left, right] -> [batch, prefix, ragged, suffix, right].
    kRows = 0,
    // Each group is summed by itself:
    // [batch, prefix, ragged, suffix, left] x [batch, prefix, ragged, suffix, right] -> [groups, batch, left, right].
    kContracted = 1,
    // One group that has all rows, whatever the sizes say: as kRows with one group.
    kAllRows = 2,
  };
  int64_t mode = kRows;
  int64_t batch = 1;
  int64_t prefix = 1;
  int64_t ragged = 1;
  int64_t suffix = 1;
  int64_t groups = 1;
  int64_t left = 1;
  int64_t right = 1;
  // 1: group sizes are [batch, prefix, groups]; 0: [groups], the same everywhere. A size below 0 is an empty group;
  // what lies beyond the end of `ragged` does not count; rows in no group give zeros.
  int64_t own_sizes = 0;

  struct Field {
    const char* attribute;
    int64_t RaggedDot::*value;
  };
  static constexpr std::array<Field, 9> Fields() {
    return {{{"mode", &RaggedDot::mode},
             {"batch", &RaggedDot::batch},
             {"prefix", &RaggedDot::prefix},
             {"ragged", &RaggedDot::ragged},
             {"suffix", &RaggedDot::suffix},
             {"groups", &RaggedDot::groups},
             {"left", &RaggedDot::left},
             {"right", &RaggedDot::right},
             {"own_sizes", &RaggedDot::own_sizes}}};
  }
};

// The targets of all these calls. A plugin compiles only calls that it has handlers for.
inline constexpr std::array<const char*, 2> kNumericTargets = {kLuTarget, kRaggedDotTarget};

// The attributes of a call as a typed-FFI backend_config.
std::string EncodeRaggedDot(const RaggedDot& dot);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_NUMERIC_CALL_H_
