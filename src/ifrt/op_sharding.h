// Reads xla.OpSharding, XLA's description of how an array is spread over devices.
#ifndef OPENPATHWAYS_IFRT_OP_SHARDING_H_
#define OPENPATHWAYS_IFRT_OP_SHARDING_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ifrt/sharding.h"

namespace openpathways::ifrt {

// `serialized_op_sharding`: a serialized xla.OpSharding of one array; empty bytes mean REPLICATED. The numbers in it
// are positions in a list of `num_devices` devices. All encodings are expanded: explicit lists, iota, and named
// shardings (mesh and axes). INVALID_ARGUMENT, saying what does not fit, for tuples, malformed bytes and tile
// assignments that are no permutation of the devices.
absl::StatusOr<Sharding::Partitioning> PartitioningFromOpSharding(absl::string_view serialized_op_sharding,
                                                                  int num_devices);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_OP_SHARDING_H_
