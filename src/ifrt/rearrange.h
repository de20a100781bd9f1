// Operations that make arrays of the shards of other arrays. No data move: shards are immutable and shared by reference
// count, so a "copy" may share them, too.
#ifndef OPENPATHWAYS_IFRT_REARRANGE_H_
#define OPENPATHWAYS_IFRT_REARRANGE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

// The shards of several arrays; the error is that of the first array that cannot be used. With kDonateInput the arrays
// are deleted, if all of them can be used.
absl::StatusOr<std::vector<std::vector<ShardRef>>> ShardsOf(absl::Span<const ArrayRef> arrays, CopySemantics semantics);

// See Backend. An array that is lost with its worker is no error of the call: the results are lost then.
absl::StatusOr<ArrayRef> Assemble(ArraySpec spec, absl::Span<const ArrayRef> arrays, CopySemantics semantics);
absl::StatusOr<std::vector<ArrayRef>> Disassemble(const ArrayRef& array, CopySemantics semantics);
absl::StatusOr<std::vector<ArrayRef>> Remap(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                            absl::Span<const ShardMapping> mappings, CopySemantics semantics);
absl::StatusOr<ArrayRef> TakeReplicatedShard(const ArrayRef& array, CopySemantics semantics);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_REARRANGE_H_
