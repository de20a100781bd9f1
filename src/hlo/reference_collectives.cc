#include "hlo/reference_collectives.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/collective_call.h"
#include "pjrt/element_type.h"

namespace openpathways::hlo {
namespace {

using Calls = std::map<int, pjrt::FfiCall>;

struct BFloat16 {
  uint16_t bits;
  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  static BFloat16 From(float value) {  // exact for the small whole numbers of the tests
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    return {static_cast<uint16_t>(wide >> 16)};
  }
};

// Exact for zero and normal numbers.
struct Float16 {
  uint16_t bits;
  operator float() const {
    const int exponent = (bits >> 10) & 31;
    const float value = exponent == 0 ? 0.0f : std::ldexp(1024.0f + (bits & 1023), exponent - 25);
    return bits & 0x8000 ? -value : value;
  }
  static Float16 From(float value) {
    if (value == 0) return {0};
    int exponent;
    const int mantissa = static_cast<int>(std::frexp(std::abs(value), &exponent) * 2048) & 1023;
    return {static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | mantissa)};
  }
};

template <typename T>
T Combine(CollectiveDescriptor::Reduction reduction, T a, T b) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return T::From(Combine<float>(reduction, a, b));
  } else {
    if (reduction == CollectiveDescriptor::SUM) return a + b;
    if (reduction == CollectiveDescriptor::PRODUCT) return a * b;
    if constexpr (!std::is_same_v<T, std::complex<float>>) {
      if (reduction == CollectiveDescriptor::MIN) return std::min(a, b);
      if (reduction == CollectiveDescriptor::MAX) return std::max(a, b);
      if (reduction == CollectiveDescriptor::OR) return a != 0 || b != 0;
      if (reduction == CollectiveDescriptor::AND) return a != 0 && b != 0;
    }
    return T();
  }
}

template <typename T>
std::string Sum(CollectiveDescriptor::Reduction reduction, const std::vector<std::string>& values) {
  std::vector<T> total(values[0].size() / sizeof(T));
  std::memcpy(total.data(), values[0].data(), values[0].size());
  for (size_t v = 1; v < values.size(); ++v) {
    for (size_t i = 0; i < total.size(); ++i) {
      T element;
      std::memcpy(&element, values[v].data() + i * sizeof(T), sizeof(T));
      total[i] = Combine<T>(reduction, total[i], element);
    }
  }
  return std::string(reinterpret_cast<const char*>(total.data()), total.size() * sizeof(T));
}

absl::StatusOr<std::string> Reduce(const CollectiveDescriptor& descriptor, int type,
                                   const std::vector<std::string>& values) {
  switch (type) {
    case 1:
      return Sum<uint8_t>(descriptor.reduction(), values);
    case 2:
      return Sum<int8_t>(descriptor.reduction(), values);
    case 4:
      return Sum<int32_t>(descriptor.reduction(), values);
    case 10:
      return Sum<Float16>(descriptor.reduction(), values);
    case 11:
      return Sum<float>(descriptor.reduction(), values);
    case 12:
      return Sum<double>(descriptor.reduction(), values);
    case 15:
      return Sum<std::complex<float>>(descriptor.reduction(), values);
    case 16:
      return Sum<BFloat16>(descriptor.reduction(), values);
    default:
      return absl::UnimplementedError(absl::StrCat("reduction of ", pjrt::ElementTypeName(type)));
  }
}

// An array seen as [outer][dimension][inner bytes].
struct View {
  size_t outer = 1, size = 1, inner = 1;
  size_t row() const { return size * inner; }
};

View ViewOf(const CollectiveDescriptor::Array& array, int64_t dimension) {
  View view;
  view.inner = *pjrt::ElementBits(array.element_type()) / 8;
  for (int i = 0; i < array.dims_size(); ++i) {
    (i < dimension ? view.outer : i == dimension ? view.size : view.inner) *= array.dims(i);
  }
  return view;
}

class Execution {
 public:
  Execution(const CollectiveDescriptor& descriptor, Calls& calls) : descriptor_(descriptor), calls_(calls) {}

  absl::Status Run() {
    if (descriptor_.kind() == CollectiveDescriptor::COLLECTIVE_PERMUTE) return Permute();
    for (const auto& group : descriptor_.groups()) {
      std::vector<int> devices(group.devices().begin(), group.devices().end());
      RETURN_IF_ERROR(RunGroup(devices));
    }
    return absl::OkStatus();
  }

 private:
  std::string Operand(int device, int index) const {
    const pjrt::FfiBuffer& buffer = calls_.at(device).operands()[index];
    return std::string(static_cast<const char*>(buffer.data), buffer.size);
  }
  char* Result(int device, int index) const { return static_cast<char*>(calls_.at(device).results()[index].data); }

  absl::Status Permute() {
    for (int i = 0; i < descriptor_.operands_size(); ++i) {
      for (auto& [device, call] : calls_) std::memset(Result(device, i), 0, call.results()[i].size);
      for (const auto& pair : descriptor_.pairs()) {
        const std::string value = Operand(static_cast<int>(pair.source()), i);
        std::memcpy(Result(static_cast<int>(pair.target()), i), value.data(), value.size());
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunGroup(const std::vector<int>& devices) {
    if (descriptor_.kind() == CollectiveDescriptor::RAGGED_ALL_TO_ALL) return Ragged(devices);
    if (descriptor_.kind() == CollectiveDescriptor::ALL_TO_ALL && descriptor_.dimension() < 0) {
      return TupleAllToAll(devices);
    }
    for (int i = 0; i < descriptor_.operands_size(); ++i) RETURN_IF_ERROR(RunArray(devices, i));
    return absl::OkStatus();
  }

  absl::Status RunArray(const std::vector<int>& devices, int i) {
    const size_t n = devices.size();
    const View in = ViewOf(descriptor_.operands(i), descriptor_.dimension());
    const View out = ViewOf(descriptor_.results(i), descriptor_.dimension());
    std::vector<std::string> values;
    for (int device : devices) values.push_back(Operand(device, i));
    std::string total;
    if (descriptor_.reduction() != CollectiveDescriptor::REDUCTION_UNSPECIFIED) {
      ASSIGN_OR_RETURN(total, Reduce(descriptor_, descriptor_.operands(i).element_type(), values));
    }
    for (size_t me = 0; me < n; ++me) {
      char* result = Result(devices[me], i);
      switch (descriptor_.kind()) {
        case CollectiveDescriptor::ALL_REDUCE:
          std::memcpy(result, total.data(), total.size());
          break;
        case CollectiveDescriptor::COLLECTIVE_BROADCAST:
          std::memcpy(result, values[0].data(), values[0].size());
          break;
        case CollectiveDescriptor::ALL_GATHER:
          for (size_t o = 0; o < in.outer; ++o) {
            for (size_t g = 0; g < n; ++g) {
              std::memcpy(result + o * out.row() + g * in.row(), values[g].data() + o * in.row(), in.row());
            }
          }
          break;
        case CollectiveDescriptor::REDUCE_SCATTER:
          for (size_t o = 0; o < in.outer; ++o) {
            std::memcpy(result + o * out.row(), total.data() + o * in.row() + me * out.row(), out.row());
          }
          break;
        case CollectiveDescriptor::ALL_TO_ALL:
          for (size_t o = 0; o < in.outer; ++o) {
            for (size_t g = 0; g < n; ++g) {
              std::memcpy(result + o * in.row() + g * in.row() / n, values[g].data() + o * in.row() + me * in.row() / n,
                          in.row() / n);
            }
          }
          break;
        default:
          return absl::UnimplementedError("kind of collective");
      }
    }
    return absl::OkStatus();
  }

  absl::Status TupleAllToAll(const std::vector<int>& devices) {
    for (size_t me = 0; me < devices.size(); ++me) {
      for (size_t from = 0; from < devices.size(); ++from) {
        const std::string value = Operand(devices[from], static_cast<int>(me));
        std::memcpy(Result(devices[me], static_cast<int>(from)), value.data(), value.size());
      }
    }
    return absl::OkStatus();
  }

  absl::Status Ragged(const std::vector<int>& devices) {
    const size_t row = ViewOf(descriptor_.operands(0), 0).inner;
    auto table = [&](int device, int operand) {
      return static_cast<const int32_t*>(calls_.at(device).operands()[operand].data);
    };
    for (int device : devices) {
      const std::string start = Operand(device, 1);
      std::memcpy(Result(device, 0), start.data(), start.size());
    }
    for (int source : devices) {
      const std::string value = Operand(source, 0);
      for (size_t t = 0; t < devices.size(); ++t) {
        std::memcpy(Result(devices[t], 0) + table(source, 4)[t] * row, value.data() + table(source, 2)[t] * row,
                    table(source, 3)[t] * row);
      }
    }
    return absl::OkStatus();
  }

  const CollectiveDescriptor& descriptor_;
  Calls& calls_;
};

absl::StatusOr<CollectiveDescriptor> ReadDescriptor(const pjrt::FfiCall& call) {
  ASSIGN_OR_RETURN(absl::string_view attribute, call.StringAttribute(kCollectiveAttribute));
  return DecodeCollective(attribute);
}

uint32_t ReadNumber(const pjrt::FfiBuffer& buffer) { return *static_cast<const uint32_t*>(buffer.data); }

}  // namespace

void ReferenceCollectives::Join(pjrt::FfiCall call) {
  absl::StatusOr<CollectiveDescriptor> descriptor = ReadDescriptor(call);
  absl::StatusOr<int64_t> num_partitions = call.IntAttribute(kNumPartitionsAttribute);
  if (!descriptor.ok()) return call.Finish(descriptor.status());
  if (!num_partitions.ok()) return call.Finish(num_partitions.status());
  const size_t extra = call.operands().size() - kCollectiveExtraOperands;
  const int device = static_cast<int>(
      LogicalDevice(ReadNumber(call.operands()[extra]), ReadNumber(call.operands()[extra + 1]), *num_partitions));
  Calls calls;
  {
    absl::MutexLock lock(&mu_);
    const int repetition = repetitions_[{device, descriptor->instruction()}]++;
    Calls& waiting = waiting_[{descriptor->instruction(), repetition}];
    waiting.emplace(device, std::move(call));
    if (static_cast<int>(waiting.size()) < devices_) return;
    calls.swap(waiting);
  }
  const absl::Status status = Execution(*descriptor, calls).Run();
  for (auto& [number, waiting] : calls) waiting.Finish(status);
}

void HandleReferenceCollective(pjrt::FfiCall call) {
  auto* collectives = static_cast<ReferenceCollectives*>(call.user_data());
  collectives->Join(std::move(call));
}

}  // namespace openpathways::hlo
