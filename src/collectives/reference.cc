#include "collectives/reference.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "collectives/element_type.h"
#include "collectives/narrow_float.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;
using Element = std::string;  // the bytes of one element; a packed one is a byte of its own
using Elements = std::vector<Element>;

int BitsOf(const Descriptor::Array& array) { return (*FindElementType(array.element_type()))->bits; }

int64_t CountOf(const Descriptor::Array& array) {
  int64_t count = 1;
  for (int64_t dim : array.dims()) count *= dim;
  return count;
}

Elements Unpack(const Descriptor::Array& array, const std::string& bytes) {
  const int bits = BitsOf(array);
  Elements elements;
  for (int64_t i = 0; i < CountOf(array); ++i) {
    if (bits >= 8) {
      elements.push_back(bytes.substr(i * bits / 8, bits / 8));
    } else {
      const int value = (static_cast<uint8_t>(bytes[i * bits / 8]) >> (i * bits % 8)) & ((1 << bits) - 1);
      elements.push_back(std::string(1, static_cast<char>(value)));
    }
  }
  return elements;
}

std::string Pack(const Descriptor::Array& array, const Elements& elements) {
  const int bits = BitsOf(array);
  std::string bytes(ByteSize(array), '\0');
  for (size_t i = 0; i < elements.size(); ++i) {
    if (bits >= 8) {
      bytes.replace(i * bits / 8, bits / 8, elements[i]);
    } else {
      bytes[i * bits / 8] = static_cast<char>(static_cast<uint8_t>(bytes[i * bits / 8]) |
                                              static_cast<uint8_t>(elements[i][0]) << (i * bits % 8));
    }
  }
  return bytes;
}

// ---- Reductions.

template <typename T>
T As(const Element& element) {
  T value;
  std::memcpy(&value, element.data(), sizeof(value));
  return value;
}
template <typename T>
Element From(T value) {
  return Element(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T CombineInteger(Descriptor::Reduction reduction, T a, T b) {
  using U = unsigned __int128;
  switch (reduction) {
    case Descriptor::SUM:
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case Descriptor::PRODUCT:
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case Descriptor::MIN:
      return std::min(a, b);
    case Descriptor::MAX:
      return std::max(a, b);
    case Descriptor::AND:
      return a & b;
    case Descriptor::OR:
      return a | b;
    case Descriptor::XOR:
      return a ^ b;
    default:
      std::abort();
  }
}
template <typename T>
T CombineFloat(Descriptor::Reduction reduction, T a, T b) {
  switch (reduction) {
    case Descriptor::SUM:
      return a + b;
    case Descriptor::PRODUCT:
      return a * b;
    case Descriptor::MIN:
      return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
    case Descriptor::MAX:
      return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
    default:
      std::abort();
  }
}

template <typename T>
Element FoldInteger(Descriptor::Reduction reduction, const Elements& values) {
  T result = As<T>(values[0]);
  for (size_t i = 1; i < values.size(); ++i) result = CombineInteger<T>(reduction, result, As<T>(values[i]));
  return From(result);
}
template <typename T>
Element FoldFloat(Descriptor::Reduction reduction, const Elements& values) {
  T result = As<T>(values[0]);
  for (size_t i = 1; i < values.size(); ++i) result = CombineFloat<T>(reduction, result, As<T>(values[i]));
  return From(result);
}
template <typename Format>
Element FoldNarrow(Descriptor::Reduction reduction, const Elements& values) {
  if (values.size() == 1) return values[0];
  using Storage = typename Format::Storage;
  float result = Format::Decode(As<Storage>(values[0]));
  for (size_t i = 1; i < values.size(); ++i) {
    result = CombineFloat<float>(reduction, result, Format::Decode(As<Storage>(values[i])));
  }
  return From<Storage>(Format::Encode(result));
}
template <typename T>
Element FoldComplex(Descriptor::Reduction reduction, const Elements& values) {
  std::complex<T> result = As<std::complex<T>>(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    const auto value = As<std::complex<T>>(values[i]);
    if (reduction == Descriptor::SUM) {
      result += value;
    } else {
      result = {result.real() * value.real() - result.imag() * value.imag(),
                result.real() * value.imag() + result.imag() * value.real()};
    }
  }
  return From(result);
}
Element FoldPacked(Descriptor::Reduction reduction, int bits, bool is_signed, const Elements& values) {
  const auto extend = [&](const Element& element) {
    const int value = static_cast<uint8_t>(element[0]);
    return static_cast<int8_t>(is_signed && value >= (1 << (bits - 1)) ? value - (1 << bits) : value);
  };
  int8_t result = extend(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    result = CombineInteger<int8_t>(reduction, result, extend(values[i]));
    result = extend(Element(1, static_cast<char>(result & ((1 << bits) - 1))));
  }
  return Element(1, static_cast<char>(result & ((1 << bits) - 1)));
}
Element FoldPred(Descriptor::Reduction reduction, const Elements& values) {
  bool result = values[0][0] != 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const bool value = values[i][0] != 0;
    switch (reduction) {
      case Descriptor::SUM:
      case Descriptor::MAX:
      case Descriptor::OR:
        result = result || value;
        break;
      case Descriptor::PRODUCT:
      case Descriptor::MIN:
      case Descriptor::AND:
        result = result && value;
        break;
      default:
        result = result != value;
        break;
    }
  }
  return Element(1, result ? 1 : 0);
}

Element FoldElements(PrimitiveType type, Descriptor::Reduction reduction, const Elements& values) {
  switch (type) {
    case PrimitiveType::kPred:
      return FoldPred(reduction, values);
    case PrimitiveType::kS2:
      return FoldPacked(reduction, 2, true, values);
    case PrimitiveType::kS4:
      return FoldPacked(reduction, 4, true, values);
    case PrimitiveType::kU2:
      return FoldPacked(reduction, 2, false, values);
    case PrimitiveType::kU4:
      return FoldPacked(reduction, 4, false, values);
    case PrimitiveType::kS8:
      return FoldInteger<int8_t>(reduction, values);
    case PrimitiveType::kS16:
      return FoldInteger<int16_t>(reduction, values);
    case PrimitiveType::kS32:
      return FoldInteger<int32_t>(reduction, values);
    case PrimitiveType::kS64:
      return FoldInteger<int64_t>(reduction, values);
    case PrimitiveType::kU8:
      return FoldInteger<uint8_t>(reduction, values);
    case PrimitiveType::kU16:
      return FoldInteger<uint16_t>(reduction, values);
    case PrimitiveType::kU32:
      return FoldInteger<uint32_t>(reduction, values);
    case PrimitiveType::kU64:
      return FoldInteger<uint64_t>(reduction, values);
    case PrimitiveType::kF32:
      return FoldFloat<float>(reduction, values);
    case PrimitiveType::kF64:
      return FoldFloat<double>(reduction, values);
    case PrimitiveType::kC64:
      return FoldComplex<float>(reduction, values);
    case PrimitiveType::kC128:
      return FoldComplex<double>(reduction, values);
    case PrimitiveType::kF16:
      return FoldNarrow<F16Format>(reduction, values);
    case PrimitiveType::kBf16:
      return FoldNarrow<Bf16Format>(reduction, values);
    case PrimitiveType::kF8E5M2:
      return FoldNarrow<F8E5M2Format>(reduction, values);
    case PrimitiveType::kF8E4M3Fn:
      return FoldNarrow<F8E4M3FnFormat>(reduction, values);
    case PrimitiveType::kF8E4M3B11Fnuz:
      return FoldNarrow<F8E4M3B11FnuzFormat>(reduction, values);
    case PrimitiveType::kF8E5M2Fnuz:
      return FoldNarrow<F8E5M2FnuzFormat>(reduction, values);
    case PrimitiveType::kF8E4M3Fnuz:
      return FoldNarrow<F8E4M3FnuzFormat>(reduction, values);
    case PrimitiveType::kF8E4M3:
      return FoldNarrow<F8E4M3Format>(reduction, values);
    case PrimitiveType::kF8E3M4:
      return FoldNarrow<F8E3M4Format>(reduction, values);
    default:
      std::abort();
  }
}

// The values of the members, combined as reduce.h says.
Element Reduce(const Descriptor& descriptor, int element_type, const std::vector<int64_t>& devices,
               const Placement& placement, const Elements& values) {
  const auto type = static_cast<PrimitiveType>(element_type);
  std::vector<WorkerId> workers;
  std::vector<Elements> by_worker;
  for (size_t m = 0; m < devices.size(); ++m) {
    const WorkerId worker = placement[devices[m]];
    const size_t w = std::find(workers.begin(), workers.end(), worker) - workers.begin();
    if (w == workers.size()) {
      workers.push_back(worker);
      by_worker.emplace_back();
    }
    by_worker[w].push_back(values[m]);
  }
  Elements partials;
  for (const Elements& own : by_worker) partials.push_back(FoldElements(type, descriptor.reduction(), own));
  return FoldElements(type, descriptor.reduction(), partials);
}

// ---- Positions: an array seen as [outer, dims[d], inner].

struct View {
  View(const Descriptor::Array& array, int64_t d) : middle(array.dims(static_cast<int>(d))) {
    for (int i = 0; i < array.dims_size(); ++i) {
      if (i < d) outer *= array.dims(i);
      if (i > d) inner *= array.dims(i);
    }
  }
  int64_t index(int64_t o, int64_t m, int64_t i) const { return (o * middle + m) * inner + i; }
  int64_t outer = 1, middle, inner = 1;
};

int64_t IntegerAt(const Descriptor::Array& array, const std::string& bytes, int64_t index) {
  if (BitsOf(array) == 32) return As<int32_t>(bytes.substr(index * 4, 4));
  return As<int64_t>(bytes.substr(index * 8, 8));
}

class Evaluator {
 public:
  Evaluator(const Descriptor& descriptor, const Placement& placement, const std::vector<DeviceArrays>& operands)
      : descriptor_(descriptor), placement_(placement), operands_(operands), results_(placement.size()) {
    for (DeviceArrays& arrays : results_) {
      for (const Descriptor::Array& array : descriptor.results()) arrays.push_back(std::string(ByteSize(array), '\0'));
    }
  }

  std::vector<DeviceArrays> Run() {
    if (descriptor_.kind() == Descriptor::COLLECTIVE_PERMUTE) {
      for (const auto& pair : descriptor_.pairs()) results_[pair.target()] = operands_[pair.source()];
      return results_;
    }
    for (const auto& group : descriptor_.groups()) {
      const std::vector<int64_t> devices(group.devices().begin(), group.devices().end());
      if (descriptor_.kind() == Descriptor::RAGGED_ALL_TO_ALL) {
        RunRagged(devices);
        continue;
      }
      for (int k = 0; k < descriptor_.operands_size(); ++k) RunOperand(devices, k);
    }
    return results_;
  }

 private:
  void RunOperand(const std::vector<int64_t>& devices, int k) {
    const int n = static_cast<int>(devices.size());
    const Descriptor::Array& operand = descriptor_.operands(k);
    std::vector<Elements> in;
    for (int64_t device : devices) in.push_back(Unpack(operand, operands_[device][k]));
    if (descriptor_.kind() == Descriptor::ALL_TO_ALL && descriptor_.dimension() < 0) {
      for (int i = 0; i < n; ++i) results_[devices[k]][i] = operands_[devices[i]][k];
      return;
    }
    for (int j = 0; j < n; ++j) {
      Elements out(CountOf(descriptor_.results(k)));
      for (size_t e = 0; e < out.size(); ++e) out[e] = OutputElement(devices, k, j, static_cast<int64_t>(e), in);
      results_[devices[j]][k] = Pack(descriptor_.results(k), out);
    }
  }

  // Element `e` of result k of member j.
  Element OutputElement(const std::vector<int64_t>& devices, int k, int j, int64_t e, const std::vector<Elements>& in) {
    const Descriptor::Array& operand = descriptor_.operands(k);
    const Descriptor::Array& result = descriptor_.results(k);
    const int64_t d = descriptor_.dimension();
    const auto reduced = [&](int64_t index) {
      Elements values;
      for (const Elements& elements : in) values.push_back(elements[index]);
      return Reduce(descriptor_, operand.element_type(), devices, placement_, values);
    };
    if (descriptor_.kind() == Descriptor::ALL_REDUCE) return reduced(e);
    if (descriptor_.kind() == Descriptor::COLLECTIVE_BROADCAST) return in[0][e];
    const View from(operand, d), to(result, d);
    const int64_t i = e % to.inner, m = e / to.inner % to.middle, o = e / to.inner / to.middle;
    switch (descriptor_.kind()) {
      case Descriptor::ALL_GATHER:
        return in[m / from.middle][from.index(o, m % from.middle, i)];
      case Descriptor::REDUCE_SCATTER:
        return reduced(from.index(o, j * to.middle + m, i));
      case Descriptor::ALL_TO_ALL: {
        const int64_t block = from.middle / static_cast<int64_t>(devices.size());
        return in[m / block][from.index(o, j * block + m % block, i)];
      }
      default:
        std::abort();
    }
  }

  void RunRagged(const std::vector<int64_t>& devices) {
    const int64_t n = static_cast<int64_t>(devices.size());
    const Descriptor::Array& input = descriptor_.operands(0);
    const Descriptor::Array& output = descriptor_.results(0);
    const int64_t updates = CountOf(descriptor_.operands(2)) / n;
    const View rows(output, 0);
    std::vector<Elements> out;
    for (int64_t device : devices) out.push_back(Unpack(output, operands_[device][1]));
    for (int64_t i = 0; i < n; ++i) {
      const DeviceArrays& own = operands_[devices[i]];
      const Elements in = Unpack(input, own[0]);
      for (int64_t entry = 0; entry < n * updates; ++entry) {
        const int64_t from = IntegerAt(descriptor_.operands(2), own[2], entry);
        const int64_t size = IntegerAt(descriptor_.operands(3), own[3], entry);
        const int64_t to = IntegerAt(descriptor_.operands(4), own[4], entry);
        for (int64_t x = 0; x < size * rows.inner; ++x) {
          out[entry / updates][to * rows.inner + x] = in[from * rows.inner + x];
        }
      }
    }
    for (int64_t i = 0; i < n; ++i) results_[devices[i]][0] = Pack(output, out[i]);
  }

  const Descriptor& descriptor_;
  const Placement& placement_;
  const std::vector<DeviceArrays>& operands_;
  std::vector<DeviceArrays> results_;
};

}  // namespace

size_t ByteSize(const Descriptor::Array& array) {
  return static_cast<size_t>((CountOf(array) * BitsOf(array) + 7) / 8);
}

bool SameArray(const Descriptor::Array& array, const std::string& a, const std::string& b) {
  return BitsOf(array) >= 8 ? a == b : Unpack(array, a) == Unpack(array, b);
}

std::vector<DeviceArrays> ReferenceResults(const Descriptor& descriptor, const Placement& placement,
                                           const std::vector<DeviceArrays>& operands) {
  return Evaluator(descriptor, placement, operands).Run();
}

}  // namespace openpathways::collectives
