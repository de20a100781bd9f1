// Arrays with the values of others, but spread over devices in another way.
#ifndef OPENPATHWAYS_IFRT_RESHARD_H_
#define OPENPATHWAYS_IFRT_RESHARD_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cluster/cluster.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

// See Backend::ReshardArrays. Each distinct part of a result goes once to each worker that needs it, straight from a
// worker that has it: the same one if it has it itself, else one of the same slice, else any; among equals the one
// that has least to send. One command to each worker that takes part, however many arrays.
absl::StatusOr<std::vector<ArrayRef>> Reshard(const cluster::Cluster& cluster, absl::Span<const ArrayRef> arrays,
                                              std::vector<ArraySpec> specs, CopySemantics semantics);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_RESHARD_H_
