// Host data on their way into the shards of a new array.
#ifndef OPENPATHWAYS_IFRT_HOST_TRANSFER_H_
#define OPENPATHWAYS_IFRT_HOST_TRANSFER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cluster/cluster.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

// See Backend::MakeArrayFromHostShards. Every piece of a buffer goes at once to each worker that needs it; the producer
// is held back while any of them has too much on its way.
absl::StatusOr<ArrayRef> TransferHostShards(const cluster::Cluster& cluster, ArraySpec spec,
                                            std::vector<HostShard> shards);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_HOST_TRANSFER_H_
