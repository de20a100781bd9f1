// The TPU machines that Google Kubernetes Engine rents, which PathwaysJobs name (`workers[].type`): the hosts of
// slices.
#ifndef OPENPATHWAYS_TOPOLOGY_MACHINE_TYPE_H_
#define OPENPATHWAYS_TOPOLOGY_MACHINE_TYPE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/slice_topology.h"

namespace openpathways::topology {

// Facts: Google Cloud's "TPUs in GKE" (machine types, labels of nodes).
struct MachineType {
  std::string name;             // "ct5p-hightpu-4t"
  std::string accelerator;      // label cloud.google.com/gke-tpu-accelerator of its nodes: "tpu-v5p-slice"
  std::string instance_prefix;  // in --instance_type: "tpuv5"
  int chips = 0;                // of one machine
};

const std::vector<MachineType>& MachineTypes();

// INVALID_ARGUMENT lists them.
absl::StatusOr<MachineType> FindMachineType(absl::string_view name);

// The machine whose slices `slice` is one of: that of four chips, unless the slice was asked for on one host. NOT_FOUND
// if there is none to be had.
absl::StatusOr<MachineType> MachineTypeOf(const SliceTopology& slice);

// All slices that can be made of such machines, smallest first.
std::vector<SliceTopology> SlicesOf(const MachineType& machine);

}  // namespace openpathways::topology

#endif  // OPENPATHWAYS_TOPOLOGY_MACHINE_TYPE_H_
