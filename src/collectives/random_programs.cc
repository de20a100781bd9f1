#include "collectives/random_programs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "collectives/narrow_float.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

// Cuts all devices, shuffled, in groups of one size.
std::vector<std::vector<int64_t>> RandomGroups(Random& random, int64_t num_devices) {
  std::vector<int64_t> devices(num_devices);
  std::iota(devices.begin(), devices.end(), 0);
  std::shuffle(devices.begin(), devices.end(), random);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= num_devices; ++size) {
    if (num_devices % size == 0) sizes.push_back(size);
  }
  // Big groups are the interesting ones.
  const int64_t size = Uniform(random, 0, 1) ? num_devices : sizes[Uniform(random, 0, sizes.size() - 1)];
  std::vector<std::vector<int64_t>> groups;
  for (int64_t begin = 0; begin < num_devices; begin += size) {
    groups.emplace_back(devices.begin() + begin, devices.begin() + begin + size);
  }
  return groups;
}

Descriptor::Array MakeArray(PrimitiveType type, const std::vector<int64_t>& dims) {
  Descriptor::Array array;
  array.set_element_type(static_cast<int>(type));
  for (int64_t dim : dims) array.add_dims(dim);
  return array;
}

int BitsOf(PrimitiveType type) { return (*FindElementType(static_cast<int>(type)))->bits; }

std::vector<int64_t> RandomDims(Random& random, PrimitiveType type, int min_rank, int64_t max_bytes) {
  int64_t left = std::max<int64_t>(1, max_bytes * 8 / BitsOf(type));
  std::vector<int64_t> dims(Uniform(random, min_rank, 3));
  for (int64_t& dim : dims) {
    dim = Uniform(random, Uniform(random, 0, 9) == 0 ? 0 : 1, std::min<int64_t>(left, 5));
    left /= std::max<int64_t>(dim, 1);
  }
  if (!dims.empty() && left > 8) dims[Uniform(random, 0, dims.size() - 1)] *= Uniform(random, 1, left);
  return dims;
}

Descriptor::Reduction RandomReduction(Random& random, PrimitiveType type) {
  const int64_t last = HasBitwise(type) ? Descriptor::XOR : HasOrder(type) ? Descriptor::MAX : Descriptor::PRODUCT;
  return static_cast<Descriptor::Reduction>(Uniform(random, Descriptor::SUM, last));
}

void AddPermutation(Random& random, int64_t num_devices, Descriptor& descriptor) {
  std::vector<int64_t> sources(num_devices), targets(num_devices);
  std::iota(sources.begin(), sources.end(), 0);
  std::iota(targets.begin(), targets.end(), 0);
  std::shuffle(sources.begin(), sources.end(), random);
  std::shuffle(targets.begin(), targets.end(), random);
  const int64_t count = Uniform(random, 0, num_devices);
  for (int64_t i = 0; i < count; ++i) {
    Descriptor::Pair* pair = descriptor.add_pairs();
    pair->set_source(sources[i]);
    pair->set_target(targets[i]);
  }
}

// ---- Values.

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

float RandomFloat(Random& random, bool with_nan) {
  if (with_nan && Uniform(random, 0, 15) == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::uniform_real_distribution<float>(-3, 3)(random);
}

template <typename Format>
void AppendNarrow(std::string& bytes, float value) {
  Append<typename Format::Storage>(bytes, Format::Encode(value));
}

void AppendFloat(std::string& bytes, PrimitiveType type, Random& random, bool with_nan) {
  const float value = RandomFloat(random, with_nan);
  switch (type) {
    case PrimitiveType::kF32:
      return Append<float>(bytes, value);
    case PrimitiveType::kF64:
      return Append<double>(bytes, value * 1.1);
    case PrimitiveType::kC64:
      Append<float>(bytes, value);
      return Append<float>(bytes, RandomFloat(random, with_nan));
    case PrimitiveType::kC128:
      Append<double>(bytes, value * 1.1);
      return Append<double>(bytes, RandomFloat(random, with_nan));
    case PrimitiveType::kF16:
      return AppendNarrow<F16Format>(bytes, value);
    case PrimitiveType::kBf16:
      return AppendNarrow<Bf16Format>(bytes, value);
    case PrimitiveType::kF8E5M2:
      return AppendNarrow<F8E5M2Format>(bytes, value);
    case PrimitiveType::kF8E4M3Fn:
      return AppendNarrow<F8E4M3FnFormat>(bytes, value);
    case PrimitiveType::kF8E4M3B11Fnuz:
      return AppendNarrow<F8E4M3B11FnuzFormat>(bytes, value);
    case PrimitiveType::kF8E5M2Fnuz:
      return AppendNarrow<F8E5M2FnuzFormat>(bytes, value);
    case PrimitiveType::kF8E4M3Fnuz:
      return AppendNarrow<F8E4M3FnuzFormat>(bytes, value);
    case PrimitiveType::kF8E4M3:
      return AppendNarrow<F8E4M3Format>(bytes, value);
    default:
      return AppendNarrow<F8E3M4Format>(bytes, value);
  }
}

bool IsFloat(PrimitiveType type) { return IsReducible(type) && !HasBitwise(type); }

std::string RandomBytes(Random& random, const Descriptor::Array& array, bool with_nan) {
  const auto type = static_cast<PrimitiveType>(array.element_type());
  const size_t size = ByteSize(array);
  std::string bytes;
  bytes.reserve(size + 16);
  while (bytes.size() < size) {
    if (IsFloat(type)) {
      AppendFloat(bytes, type, random, with_nan);
    } else if (type == PrimitiveType::kPred) {
      Append<char>(bytes, random() & 1);
    } else {
      Append<uint64_t>(bytes, random());
    }
  }
  bytes.resize(size);
  return bytes;
}

// Offsets and sizes that fit together: every member's output is filled from the front, with gaps.
void FillRagged(Random& random, const Descriptor& descriptor, std::vector<DeviceArrays>& operands) {
  const bool narrow = static_cast<PrimitiveType>(descriptor.operands(2).element_type()) == PrimitiveType::kS32;
  for (const Descriptor::Group& group : descriptor.groups()) {
    const int64_t n = group.devices_size();
    const int64_t entries = descriptor.operands(2).dims(0);
    const int64_t updates = entries / n;
    std::vector<int64_t> next_output(n, 0);
    // tables[member][operand - 2][entry]
    std::vector<std::vector<std::vector<int64_t>>> tables(n, {4, std::vector<int64_t>(entries, 0)});
    for (int64_t i = 0; i < n; ++i) {
      int64_t next_input = 0;
      for (int64_t entry = 0; entry < entries; ++entry) {
        const int64_t j = entry / updates;
        const int64_t room =
            std::min(descriptor.operands(0).dims(0) - next_input, descriptor.results(0).dims(0) - next_output[j]);
        const int64_t rows = Uniform(random, 0, std::min<int64_t>(room, 3));
        tables[i][0][entry] = next_input;
        tables[i][1][entry] = rows;
        tables[i][2][entry] = next_output[j];
        tables[j][3][i * updates + entry % updates] = rows;
        next_input += rows;
        next_output[j] = std::min(next_output[j] + rows + Uniform(random, 0, 1), descriptor.results(0).dims(0));
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int o = 0; o < 4; ++o) {
        std::string& bytes = operands[group.devices(static_cast<int>(i))][o + 2];
        bytes.clear();
        for (int64_t value : tables[i][o]) {
          if (narrow) {
            Append<int32_t>(bytes, static_cast<int32_t>(value));
          } else {
            Append<int64_t>(bytes, value);
          }
        }
      }
    }
  }
}

}  // namespace

Placement RandomPlacement(Random& random, int max_workers) {
  Placement placement;
  const int64_t workers = Uniform(random, 1, max_workers);
  for (int64_t worker = 1; worker <= workers; ++worker) {
    placement.insert(placement.end(), Uniform(random, 1, 4), static_cast<WorkerId>(worker));
  }
  std::shuffle(placement.begin(), placement.end(), random);
  return placement;
}

Descriptor RandomCollective(Random& random, Descriptor::Kind kind, PrimitiveType type, const Placement& placement,
                            int64_t max_bytes) {
  const int64_t num_devices = static_cast<int64_t>(placement.size());
  Descriptor descriptor;
  descriptor.set_kind(kind);
  int64_t group_size = num_devices;
  if (kind == Descriptor::COLLECTIVE_PERMUTE) {
    AddPermutation(random, num_devices, descriptor);
  } else {
    for (const auto& devices : RandomGroups(random, num_devices)) {
      Descriptor::Group* group = descriptor.add_groups();
      for (int64_t device : devices) group->add_devices(device);
      group_size = static_cast<int64_t>(devices.size());
    }
  }
  if (kind == Descriptor::ALL_REDUCE || kind == Descriptor::REDUCE_SCATTER) {
    descriptor.set_reduction(RandomReduction(random, type));
  }
  if (kind == Descriptor::RAGGED_ALL_TO_ALL) {
    const std::vector<int64_t> dims = RandomDims(random, type, 1, max_bytes);
    *descriptor.add_operands() = MakeArray(type, dims);
    std::vector<int64_t> output = dims;
    output[0] = Uniform(random, 0, 3 * group_size);
    *descriptor.add_operands() = MakeArray(type, output);
    const PrimitiveType index_type = Uniform(random, 0, 1) ? PrimitiveType::kS32 : PrimitiveType::kS64;
    const int64_t entries = group_size * Uniform(random, 1, 2);
    for (int i = 0; i < 4; ++i) *descriptor.add_operands() = MakeArray(index_type, {entries});
    *descriptor.add_results() = descriptor.operands(1);
    return descriptor;
  }
  const bool tuple_form = kind == Descriptor::ALL_TO_ALL && Uniform(random, 0, 1);
  const int64_t count = tuple_form ? group_size : Uniform(random, 1, 3);
  std::vector<int64_t> dims = RandomDims(random, type, 1, max_bytes / count);
  const int64_t dimension = Uniform(random, 0, static_cast<int64_t>(dims.size()) - 1);
  descriptor.set_dimension(tuple_form ? -1 : dimension);
  for (int64_t k = 0; k < count; ++k) {
    std::vector<int64_t> scaled = dims;
    scaled[dimension] *= group_size;
    const bool small_operand = kind != Descriptor::REDUCE_SCATTER && !(kind == Descriptor::ALL_TO_ALL && !tuple_form);
    const bool big_result = kind == Descriptor::ALL_GATHER || (kind == Descriptor::ALL_TO_ALL && !tuple_form);
    *descriptor.add_operands() = MakeArray(type, small_operand ? dims : scaled);
    *descriptor.add_results() = MakeArray(type, big_result ? scaled : dims);
    if (!tuple_form) dims[dimension] = Uniform(random, 1, dims[dimension] + 1);
  }
  return descriptor;
}

std::vector<DeviceArrays> RandomOperands(Random& random, const Descriptor& descriptor, const Placement& placement) {
  const bool with_nan = descriptor.reduction() == Descriptor::MIN || descriptor.reduction() == Descriptor::MAX;
  std::vector<DeviceArrays> operands(placement.size());
  for (DeviceArrays& arrays : operands) {
    for (const Descriptor::Array& array : descriptor.operands()) {
      arrays.push_back(RandomBytes(random, array, with_nan));
    }
  }
  if (descriptor.kind() == Descriptor::RAGGED_ALL_TO_ALL) FillRagged(random, descriptor, operands);
  return operands;
}

const std::vector<PrimitiveType>& AllTypes() {
  static const auto* const types = [] {
    auto* all = new std::vector<PrimitiveType>;
    for (int number = 0; number < 64; ++number) {
      if (FindElementType(number).ok()) all->push_back(static_cast<PrimitiveType>(number));
    }
    return all;
  }();
  return *types;
}

bool IsReducible(PrimitiveType type) { return type != PrimitiveType::kF4E2M1Fn && type != PrimitiveType::kF8E8M0Fnu; }

bool HasBitwise(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kPred:
    case PrimitiveType::kS2:
    case PrimitiveType::kS4:
    case PrimitiveType::kS8:
    case PrimitiveType::kS16:
    case PrimitiveType::kS32:
    case PrimitiveType::kS64:
    case PrimitiveType::kU2:
    case PrimitiveType::kU4:
    case PrimitiveType::kU8:
    case PrimitiveType::kU16:
    case PrimitiveType::kU32:
    case PrimitiveType::kU64:
      return true;
    default:
      return false;
  }
}

bool HasOrder(PrimitiveType type) { return type != PrimitiveType::kC64 && type != PrimitiveType::kC128; }

}  // namespace openpathways::collectives
