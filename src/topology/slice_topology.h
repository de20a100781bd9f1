// A slice: the chips of one TPU machine that are wired to each other, as a type name fixes them: how many chips and
// hosts there are, which host owns which chips, what the devices are called and in which order clients see them.
//
// Devices are numbered host by host. Within a host chips go x first, then y; hosts go x first, then y, then z. A chip
// of the v7x generation is two devices (its cores), numbered one after the other; of all others, one.
//
// Names, letter case ignored:
//   v5p-16         TensorCores for v4, v5p, v7x (two a chip: this is 2x2x2), chips for v5e and v6e; of all shapes with
//                  that many chips the most cubic one
//   tpuv5:2x2x2    what Pathways' --instance_type takes; also v5p-2x2x2, ct5p-hightpu-4t:2x2x2
//   tpuv5e1t:2x4   "1t": all chips on one host (v5e and v6e, 8 chips)
#ifndef OPENPATHWAYS_TOPOLOGY_SLICE_TOPOLOGY_H_
#define OPENPATHWAYS_TOPOLOGY_SLICE_TOPOLOGY_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace openpathways::topology {

struct Generation;  // one row of the table in the .cc file

// An immutable value, cheap to copy; thread-safe.
class SliceTopology {
 public:
  using Dims = std::array<int, 3>;    // x, y, z in chips; z is 1 for the flat generations
  using Coords = std::array<int, 4>;  // x, y, z of the chip, and the core within the chip

  // INVALID_ARGUMENT lists the generations, or the legal topologies of the one that `name` means.
  static absl::StatusOr<SliceTopology> Parse(absl::string_view name);

  int num_chips() const { return dims_[0] * dims_[1] * dims_[2]; }
  int num_hosts() const { return num_chips() / chips_per_host(); }
  int num_devices() const { return num_chips() * devices_per_chip(); }
  int chips_per_host() const { return host_dims_[0] * host_dims_[1] * host_dims_[2]; }
  int devices_per_chip() const;
  int devices_per_host() const { return chips_per_host() * devices_per_chip(); }
  int cores_per_device() const;  // TensorCores that work as one device
  const Dims& dims() const { return dims_; }

  // REQUIRES: 0 <= device < num_devices().
  int host(int device) const { return device / devices_per_host(); }
  int index_on_host(int device) const { return device % devices_per_host(); }
  Coords coords(int device) const;

  // Device kind as JAX reports it for the real chip, e.g. "TPU v5".
  std::string device_kind() const;
  std::string generation() const;        // "v5p"
  std::string topology() const;          // "2x2x2"
  std::string instance_type() const;     // "tpuv5:2x2x2", canonical: Parse(instance_type()) gives the same slice
  std::string accelerator_type() const;  // "v5p-16"
  std::string machine_type() const;      // of the hosts, in Google Cloud's words: "ct5p-hightpu-4t"

  // Ids that a client session sets aside for such a slice: one for each device, as many again, and one for each host
  // (for CPU devices).
  int device_id_stride() const { return 2 * num_devices() + num_hosts(); }

  friend bool operator==(const SliceTopology& a, const SliceTopology& b) {
    return a.generation_ == b.generation_ && a.dims_ == b.dims_ && a.host_dims_ == b.host_dims_;
  }

 private:
  SliceTopology(const Generation* generation, Dims dims, Dims host_dims)
      : generation_(generation), dims_(dims), host_dims_(host_dims) {}
  bool single_host_machine() const;

  const Generation* generation_;  // static table
  Dims dims_;
  Dims host_dims_;  // the block of chips that one host owns
};

// The slices of a cluster from --instance_type ("TYPE[,TYPE...]") and --instance_count: one type for all slices, or one
// for each. `count` 0 means: as many as there are types.
absl::StatusOr<std::vector<SliceTopology>> ParseSlices(absl::string_view types, int64_t count);

// All legal shapes of a generation ("v5p"), smallest first: one, the most cubic, for every number of chips.
absl::StatusOr<std::vector<std::string>> LegalTopologies(absl::string_view generation);

}  // namespace openpathways::topology

#endif  // OPENPATHWAYS_TOPOLOGY_SLICE_TOPOLOGY_H_
