#include "topology/machine_type.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace openpathways::topology {
namespace {

// Of the largest slice of any generation, in chips: 16x24x24.
constexpr int kMaxChips = 9216;

// A slice of one chip takes a machine of this type only for v6e; the others that have such slices rent other machines.
bool IsOffered(const MachineType& machine, const SliceTopology& slice) {
  return slice.num_chips() >= machine.chips || machine.name == "ct6e-standard-4t";
}

void AddIfLegal(const MachineType& machine, const std::string& topology, std::vector<SliceTopology>& slices) {
  const absl::StatusOr<SliceTopology> slice =
      SliceTopology::Parse(absl::StrCat(machine.instance_prefix, ":", topology));
  if (!slice.ok() || !IsOffered(machine, *slice)) return;
  if (std::find(slices.begin(), slices.end(), *slice) == slices.end()) slices.push_back(*slice);
}

}  // namespace

const std::vector<MachineType>& MachineTypes() {
  static const auto* const types = new std::vector<MachineType>{
      {"ct4p-hightpu-4t", "tpu-v4-podslice", "tpuv4", 4},
      {"ct5lp-hightpu-4t", "tpu-v5-lite-podslice", "tpuv5e", 4},
      {"ct5lp-hightpu-8t", "tpu-v5-lite-podslice", "tpuv5e1t", 8},
      {"ct5p-hightpu-4t", "tpu-v5p-slice", "tpuv5", 4},
      {"ct6e-standard-4t", "tpu-v6e-slice", "tpuv6e", 4},
      {"ct6e-standard-8t", "tpu-v6e-slice", "tpuv6e1t", 8},
      {"tpu7x-standard-4t", "tpu7x", "tpu7x", 4},
  };
  return *types;
}

absl::StatusOr<MachineType> FindMachineType(absl::string_view name) {
  std::vector<std::string> names;
  for (const MachineType& machine : MachineTypes()) {
    if (machine.name == name) return machine;
    names.push_back(machine.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not a TPU machine type; there are ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<MachineType> MachineTypeOf(const SliceTopology& slice) {
  ASSIGN_OR_RETURN(MachineType machine, FindMachineType(slice.machine_type()));
  if (IsOffered(machine, slice)) return machine;
  return absl::NotFoundError(absl::StrCat("no machine type of GKE is known for ", slice.instance_type()));
}

std::vector<SliceTopology> SlicesOf(const MachineType& machine) {
  std::vector<SliceTopology> slices;
  const absl::StatusOr<std::vector<std::string>> standard = LegalTopologies(machine.instance_prefix);
  if (standard.ok()) {
    for (const std::string& topology : *standard) AddIfLegal(machine, topology, slices);
  }
  for (int a = 4; a * a * a <= kMaxChips; a += 4) {
    for (int b = a; a * b * b <= kMaxChips; b += 4) {
      for (int c = b; a * b * c <= kMaxChips; c += 4) AddIfLegal(machine, absl::StrCat(a, "x", b, "x", c), slices);
    }
  }
  std::stable_sort(slices.begin(), slices.end(),
                   [](const SliceTopology& x, const SliceTopology& y) { return x.num_chips() < y.num_chips(); });
  return slices;
}

}  // namespace openpathways::topology
