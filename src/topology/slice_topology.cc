#include "topology/slice_topology.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace openpathways::topology {

using Dims = SliceTopology::Dims;

// Facts about the generations: Google Cloud's TPU documentation (architecture pages and "TPUs in GKE").
struct Generation {
  const char* name;
  const char* instance_prefix;     // in --instance_type
  const char* accelerator_prefix;  // in v5p-16
  const char* machine_type;        // of a host with four chips; in its eight-chip variant the last part is -8t
  const char* device_kind;
  int rank;                                                      // 2: a flat grid, 3: a block
  int units_per_chip;                                            // what the number in an accelerator type counts
  int devices_per_chip;                                          // devices that a client sees
  int cores_per_device;                                          // TensorCores of one device
  int max_cubes;                                                 // rank 3: the largest slice, in cubes of 4x4x4 chips
  bool has_8_chip_host;                                          // machines named "...-8t": 2x4 chips on one host
  bool has_single_chip;                                          // a slice of one chip
  std::initializer_list<absl::string_view> aliases;              // hosts of four chips
  std::initializer_list<absl::string_view> single_host_aliases;  // one host of eight chips
};

namespace {

const Generation kGenerations[] = {
    {"v4", "tpuv4", "v4", "ct4p-hightpu-4t", "TPU v4", 3, 2, 1, 2, 64, false, false, {"v4", "tpuv4", "ct4p"}, {}},
    {"v5e",
     "tpuv5e",
     "v5litepod",
     "ct5lp-hightpu-4t",
     "TPU v5 lite",
     2,
     1,
     1,
     1,
     0,
     true,
     true,
     {"v5e", "v5lite", "v5litepod", "tpuv5e", "tpuv5lite", "tpuv5litepod", "ct5lp"},
     {"tpuv5e1t", "ct5lp-hightpu-8t"}},
    {"v5p",
     "tpuv5",
     "v5p",
     "ct5p-hightpu-4t",
     "TPU v5",
     3,
     2,
     1,
     2,
     140,
     false,
     false,
     {"v5p", "tpuv5", "tpuv5p", "ct5p"},
     {}},
    {"v6e",
     "tpuv6e",
     "v6e",
     "ct6e-standard-4t",
     "TPU v6 lite",
     2,
     1,
     1,
     1,
     0,
     true,
     true,
     {"v6e", "v6lite", "tpuv6e", "tpuv6lite", "ct6e"},
     {"tpuv6e1t", "ct6e-standard-8t"}},
    {"v7x",
     "tpu7x",
     "tpu7x",
     "tpu7x-standard-4t",
     "TPU7x",
     3,
     2,
     2,
     1,
     144,
     false,
     true,
     {"v7x", "tpu7x", "tpuv7x", "tpu7", "tpuv7"},
     {}},
};

constexpr Dims kFlatShapes[] = {{1, 1, 1}, {2, 2, 1}, {2, 4, 1},  {4, 4, 1},
                                {4, 8, 1}, {8, 8, 1}, {8, 16, 1}, {16, 16, 1}};
// Smaller than one cube of 4x4x4 chips.
constexpr Dims kPartialCubes[] = {{2, 2, 1}, {2, 2, 2}, {2, 2, 4}, {2, 4, 4}};
constexpr Dims kEightChipHost = {2, 4, 1};

int Volume(const Dims& dims) { return dims[0] * dims[1] * dims[2]; }

bool IsLegal(const Generation& generation, const Dims& dims) {
  if (dims == Dims{1, 1, 1}) return generation.has_single_chip;
  if (generation.rank == 2)
    return std::find(std::begin(kFlatShapes), std::end(kFlatShapes), dims) != std::end(kFlatShapes);
  if (std::find(std::begin(kPartialCubes), std::end(kPartialCubes), dims) != std::end(kPartialCubes)) return true;
  for (int size : dims) {
    if (size % 4 != 0 || size <= 0 || size > 4 * generation.max_cubes) return false;
  }
  if (dims[0] > dims[1] || dims[1] > dims[2]) return false;
  return int64_t{dims[0]} * dims[1] * dims[2] <= int64_t{64} * generation.max_cubes;
}

// The shape of `cubes` whole cubes with the smallest sum of sides.
Dims MostCubic(int cubes) {
  Dims best = {1, 1, cubes};
  for (int a = 1; a * a * a <= cubes; ++a) {
    for (int b = a; a * b * b <= cubes; ++b) {
      if (cubes % (a * b) != 0) continue;
      const int c = cubes / (a * b);
      if (a + b + c < best[0] + best[1] + best[2]) best = {a, b, c};
    }
  }
  return {4 * best[0], 4 * best[1], 4 * best[2]};
}

std::vector<Dims> StandardShapes(const Generation& generation) {
  std::vector<Dims> shapes;
  if (generation.rank == 2) {
    shapes.assign(std::begin(kFlatShapes), std::end(kFlatShapes));
    return shapes;
  }
  if (generation.has_single_chip) shapes.push_back({1, 1, 1});
  shapes.insert(shapes.end(), std::begin(kPartialCubes), std::end(kPartialCubes));
  for (int cubes = 1; cubes <= generation.max_cubes; ++cubes) shapes.push_back(MostCubic(cubes));
  return shapes;
}

std::string ShapeName(const Generation& generation, const Dims& dims) {
  return generation.rank == 2 ? absl::StrCat(dims[0], "x", dims[1]) : absl::StrCat(dims[0], "x", dims[1], "x", dims[2]);
}

std::string ListShapes(const Generation& generation) {
  std::vector<std::string> names;
  for (const Dims& dims : StandardShapes(generation)) names.push_back(ShapeName(generation, dims));
  std::string list = absl::StrJoin(names, " ");
  if (generation.rank == 3) {
    absl::StrAppend(&list, " (and any other AxBxC of multiples of 4 with A <= B <= C and at most ",
                    64 * generation.max_cubes, " chips)");
  }
  return list;
}

std::string ListAcceleratorTypes(const Generation& generation) {
  std::vector<std::string> names;
  for (const Dims& dims : StandardShapes(generation)) {
    names.push_back(absl::StrCat(generation.accelerator_prefix, "-", Volume(dims) * generation.units_per_chip));
  }
  return absl::StrJoin(names, " ");
}

std::string ListGenerations() {
  std::vector<std::string> lines;
  for (const Generation& g : kGenerations) {
    lines.push_back(absl::StrCat(g.name, " (", g.accelerator_prefix, "-16, ", g.instance_prefix,
                                 g.rank == 2 ? ":4x4)" : ":2x2x2)"));
  }
  return absl::StrJoin(lines, ", ");
}

struct Machine {
  const Generation* generation;
  bool single_host;  // eight chips on one host
};

std::optional<Machine> FindMachine(absl::string_view alias) {
  for (const Generation& g : kGenerations) {
    if (alias == g.machine_type || std::find(g.aliases.begin(), g.aliases.end(), alias) != g.aliases.end()) {
      return Machine{&g, false};
    }
    if (std::find(g.single_host_aliases.begin(), g.single_host_aliases.end(), alias) != g.single_host_aliases.end()) {
      return Machine{&g, true};
    }
  }
  return std::nullopt;
}

// "2x2x2" of the right rank, without any check of what is legal.
std::optional<Dims> ParseShape(const Generation& generation, absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, 'x');
  if (parts.size() != static_cast<size_t>(generation.rank)) return std::nullopt;
  Dims dims = {1, 1, 1};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!absl::SimpleAtoi(parts[i], &dims[i])) return std::nullopt;
  }
  return dims;
}

absl::StatusOr<Dims> ParseLegalShape(const Machine& machine, absl::string_view name, absl::string_view text) {
  const Generation& generation = *machine.generation;
  const std::optional<Dims> dims = ParseShape(generation, text);
  if (machine.single_host) {
    if (dims == kEightChipHost) return kEightChipHost;
    return absl::InvalidArgumentError(absl::StrCat("'", name, "': '", text, "' is not a topology of ", generation.name,
                                                   " machines with 8 chips on one host; the only one is 2x4"));
  }
  if (dims.has_value() && IsLegal(generation, *dims)) return *dims;
  return absl::InvalidArgumentError(absl::StrCat("'", name, "': '", text, "' is not a topology of ", generation.name,
                                                 "; legal ones are ", ListShapes(generation)));
}

absl::StatusOr<Dims> ShapeFromSize(const Machine& machine, absl::string_view name, int size) {
  const Generation& generation = *machine.generation;
  if (!machine.single_host) {
    for (const Dims& dims : StandardShapes(generation)) {
      if (Volume(dims) * generation.units_per_chip == size) return dims;
    }
  } else if (size == Volume(kEightChipHost)) {
    return kEightChipHost;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "': no ", generation.name, " slice has that size; legal ones are ",
      machine.single_host ? absl::StrCat(generation.instance_prefix, "1t:2x4") : ListAcceleratorTypes(generation)));
}

Dims HostBlock(const Machine& machine, const Dims& dims) {
  if (machine.single_host || Volume(dims) == 1) return dims;
  return {2, 2, 1};
}

}  // namespace

absl::StatusOr<SliceTopology> SliceTopology::Parse(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(name));
  absl::string_view text = lower;
  absl::ConsumeSuffix(&text, "_untwisted");
  // "type:shape" or, with the last dash, "type-shape" and "type-size".
  size_t split = text.find(':');
  const bool colon = split != absl::string_view::npos;
  if (!colon) split = text.rfind('-');
  const std::optional<Machine> machine = FindMachine(text.substr(0, split));
  if (!machine.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is not a known TPU type; there are ", ListGenerations()));
  }
  if (split == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' gives no size; legal ones are ",
                                                   machine->single_host ? "2x4" : ListShapes(*machine->generation)));
  }
  const absl::string_view rest = text.substr(split + 1);
  int size = 0;
  Dims dims;
  if (!colon && absl::SimpleAtoi(rest, &size)) {
    ASSIGN_OR_RETURN(dims, ShapeFromSize(*machine, name, size));
  } else {
    ASSIGN_OR_RETURN(dims, ParseLegalShape(*machine, name, rest));
  }
  return SliceTopology(machine->generation, dims, HostBlock(*machine, dims));
}

int SliceTopology::devices_per_chip() const { return generation_->devices_per_chip; }
int SliceTopology::cores_per_device() const { return generation_->cores_per_device; }
std::string SliceTopology::device_kind() const { return generation_->device_kind; }
std::string SliceTopology::generation() const { return generation_->name; }
std::string SliceTopology::topology() const { return ShapeName(*generation_, dims_); }

bool SliceTopology::single_host_machine() const { return chips_per_host() > 4; }

std::string SliceTopology::instance_type() const {
  return absl::StrCat(generation_->instance_prefix, single_host_machine() ? "1t" : "", ":", topology());
}

std::string SliceTopology::accelerator_type() const {
  return absl::StrCat(generation_->accelerator_prefix, "-", num_chips() * generation_->units_per_chip);
}

std::string SliceTopology::machine_type() const {
  const absl::string_view four_chips = generation_->machine_type;
  return single_host_machine() ? absl::StrCat(absl::StripSuffix(four_chips, "4t"), "8t") : std::string(four_chips);
}

SliceTopology::Coords SliceTopology::coords(int device) const {
  int chip = index_on_host(device) / devices_per_chip();
  int host_index = host(device);
  Coords coords;
  for (int axis = 0; axis < 3; ++axis) {
    const int hosts_on_axis = dims_[axis] / host_dims_[axis];
    coords[axis] = (host_index % hosts_on_axis) * host_dims_[axis] + chip % host_dims_[axis];
    host_index /= hosts_on_axis;
    chip /= host_dims_[axis];
  }
  coords[3] = device % devices_per_chip();
  return coords;
}

absl::StatusOr<std::vector<SliceTopology>> ParseSlices(absl::string_view types, int64_t count) {
  constexpr int64_t kMaxSlices = 100'000;  // far above any real cluster; keeps a typing error from taking all memory
  if (count < 0 || count > kMaxSlices) {
    return absl::InvalidArgumentError(absl::StrCat("the number of slices must be 1 to ", kMaxSlices, ", not ", count));
  }
  std::vector<SliceTopology> slices;
  for (absl::string_view type : absl::StrSplit(types, ',')) {
    ASSIGN_OR_RETURN(SliceTopology slice, SliceTopology::Parse(type));
    slices.push_back(slice);
  }
  if (count == 0 || static_cast<int64_t>(slices.size()) == count) return slices;
  if (slices.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", types, "' names ", slices.size(), " slices, but ", count,
                                                   " were asked for: give one type for all or one for each"));
  }
  slices.resize(count, slices[0]);
  return slices;
}

absl::StatusOr<std::vector<std::string>> LegalTopologies(absl::string_view generation) {
  const std::optional<Machine> machine = FindMachine(absl::AsciiStrToLower(generation));
  if (!machine.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", generation, "' is not a known TPU generation; there are ", ListGenerations()));
  }
  std::vector<std::string> names;
  for (const Dims& dims : StandardShapes(*machine->generation)) names.push_back(ShapeName(*machine->generation, dims));
  return names;
}

}  // namespace openpathways::topology
