#include "hlo/cost_analysis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/shape.h"
#include "pjrt/element_type.h"

namespace openpathways::hlo {
namespace {

using Costs = std::map<std::string, double>;

constexpr char kFlops[] = "flops";
constexpr char kTranscendentals[] = "transcendentals";
constexpr char kBytes[] = "bytes accessed";
constexpr char kOutputBytes[] = "bytes accessedout{}";
constexpr int64_t kPointerBytes = 4;  // in XLA's count, of an element of a tuple
constexpr double kFlopsOfMultiplyAdd = 2;

std::string OperandBytesKey(size_t operand) { return absl::StrCat("bytes accessed", operand, "{}"); }
std::string UtilizationKey(size_t operand) { return absl::StrCat("utilization", operand, "{}"); }

double Elements(const ShapeProto& shape) {
  double elements = 1;
  for (int64_t size : shape.dimensions()) elements *= static_cast<double>(size);
  return elements;
}

double Bytes(const ShapeProto& shape) {
  if (shape.element_type() == kTuple) return static_cast<double>(kPointerBytes * shape.tuple_shapes_size());
  const absl::StatusOr<int> bits = pjrt::ElementBits(shape.element_type());
  return bits.ok() ? std::ceil(Elements(shape) * *bits / 8) : 0;
}

// All that a value holds, tuples opened.
double LeafBytes(const ShapeProto& shape) {
  if (shape.element_type() != kTuple) return Bytes(shape);
  double bytes = 0;
  for (const ShapeProto& element : shape.tuple_shapes()) bytes += LeafBytes(element);
  return bytes;
}

void Add(Costs& sum, const Costs& costs) {
  for (const auto& [name, value] : costs) sum[name] += value;
}

bool IsOneOf(const std::string& opcode, std::initializer_list<absl::string_view> opcodes) {
  return std::find(opcodes.begin(), opcodes.end(), opcode) != opcodes.end();
}

bool IsTranscendental(const std::string& opcode) {
  return IsOneOf(opcode, {"acos",
                          "acosh",
                          "asin",
                          "asinh",
                          "atan2",
                          "atanh",
                          "cbrt",
                          "cosh",
                          "sinh",
                          "cosine",
                          "erf",
                          "exponential",
                          "exponential-minus-one",
                          "log",
                          "log-plus-one",
                          "logistic",
                          "power",
                          "rng",
                          "rsqrt",
                          "sine",
                          "sqrt",
                          "tan",
                          "tanh"});
}

bool IsElementwise(const std::string& opcode) {
  return IsOneOf(opcode, {"abs",
                          "add",
                          "and",
                          "ceil",
                          "clamp",
                          "clz",
                          "compare",
                          "complex",
                          "convert",
                          "count-leading-zeros",
                          "divide",
                          "floor",
                          "imag",
                          "is-finite",
                          "maximum",
                          "minimum",
                          "multiply",
                          "negate",
                          "not",
                          "or",
                          "popcnt",
                          "real",
                          "reduce-precision",
                          "remainder",
                          "round-nearest-afz",
                          "round-nearest-even",
                          "select",
                          "shift-left",
                          "shift-right-arithmetic",
                          "shift-right-logical",
                          "sign",
                          "stochastic-convert",
                          "subtract",
                          "xor"});
}

// Names of values that are there already.
bool IsFree(const std::string& opcode) {
  return IsOneOf(opcode, {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all",
                          "add-dependency", "opt-barrier", "domain", "partition-id", "replica-id", "get-dimension-size",
                          "set-dimension-size", "async-done", "async-update", "send-done", "recv-done"});
}

// Positions of a window along one dimension that meet an element of the input, summed over its outputs.
double ValidPositions(const WindowDimension& window, int64_t input, int64_t output) {
  const int64_t stride = std::max<int64_t>(1, window.stride());
  const int64_t window_dilation = std::max<int64_t>(1, window.window_dilation());
  const int64_t base_dilation = std::max<int64_t>(1, window.base_dilation());
  const int64_t dilated_input = input == 0 ? 0 : (input - 1) * base_dilation + 1;
  double valid = 0;
  for (int64_t k = 0; k < window.size(); ++k) {
    const int64_t offset = k * window_dilation - window.padding_low();
    if (base_dilation == 1) {
      // Outputs o with 0 <= o * stride + offset < input.
      const int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
      const int64_t last = input - 1 - offset < 0 ? -1 : (input - 1 - offset) / stride;
      valid += static_cast<double>(std::max<int64_t>(0, std::min(last, output - 1) - first + 1));
      continue;
    }
    for (int64_t o = 0; o < output; ++o) {
      const int64_t at = o * stride + offset;
      if (at >= 0 && at < dilated_input && at % base_dilation == 0) ++valid;
    }
  }
  return valid;
}

class Analyzer {
 public:
  explicit Analyzer(const HloModuleProto& module) {
    for (const HloComputationProto& computation : module.computations()) {
      computations_[computation.id()] = &computation;
      for (const HloInstructionProto& instruction : computation.instructions()) {
        instructions_[instruction.id()] = &instruction;
      }
    }
  }

  const Costs& OfComputation(int64_t id) {
    auto [found, is_new] = costs_.try_emplace(id);
    if (!is_new) return found->second;
    Costs sum;
    if (auto computation = computations_.find(id); computation != computations_.end()) {
      for (const HloInstructionProto& instruction : computation->second->instructions()) {
        Add(sum, OfInstruction(instruction));
      }
    }
    return costs_[id] = std::move(sum);
  }

 private:
  const ShapeProto& OperandShape(const HloInstructionProto& instruction, int operand) const {
    static const auto* const none = new ShapeProto;
    if (operand >= instruction.operand_ids_size()) return *none;
    auto found = instructions_.find(instruction.operand_ids(operand));
    return found == instructions_.end() ? *none : found->second->shape();
  }

  const HloInstructionProto* Root(int64_t computation) const {
    auto found = computations_.find(computation);
    if (found == computations_.end()) return nullptr;
    auto root = instructions_.find(found->second->root_id());
    return root == instructions_.end() ? nullptr : root->second;
  }

  Costs OfInstruction(const HloInstructionProto& instruction) {
    const std::string& opcode = instruction.opcode();
    if (IsFree(opcode)) return OfNaming(instruction);
    if (opcode == "while" || opcode == "call" || opcode == "async-start") return SumOfCalled(instruction);
    if (opcode == "conditional") return DearestOfCalled(instruction);
    if (opcode == "fusion") return OfFusion(instruction);
    Costs costs = OfTraffic(instruction);
    Add(costs, OfArithmetic(instruction));
    return costs;
  }

  static Costs OfNaming(const HloInstructionProto& instruction) {
    Costs costs;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) costs[UtilizationKey(i)] = 1;
    if (instruction.opcode() == "tuple") costs[kBytes] = costs[kOutputBytes] = Bytes(instruction.shape());
    return costs;
  }

  Costs SumOfCalled(const HloInstructionProto& instruction) {
    Costs costs;
    for (int64_t called : instruction.called_computation_ids()) Add(costs, OfComputation(called));
    return costs;
  }

  Costs DearestOfCalled(const HloInstructionProto& instruction) {
    Costs costs;
    for (int64_t called : instruction.called_computation_ids()) {
      for (const auto& [name, value] : OfComputation(called)) costs[name] = std::max(costs[name], value);
    }
    return costs;
  }

  // What is read and written by an instruction that is no fusion.
  Costs OfTraffic(const HloInstructionProto& instruction) const {
    Costs costs;
    std::vector<double> operands;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) operands.push_back(Bytes(OperandShape(instruction, i)));
    double output = Bytes(instruction.shape());
    LimitTraffic(instruction, operands, output);
    costs[kOutputBytes] = output;
    costs[kBytes] = output;
    for (size_t i = 0; i < operands.size(); ++i) {
      costs[OperandBytesKey(i)] = operands[i];
      costs[UtilizationKey(i)] = 1;
      costs[kBytes] += operands[i];
    }
    for (int i = 0; i < instruction.shape().tuple_shapes_size(); ++i) {
      costs[absl::StrCat("bytes accessedout{", i, "}")] = Bytes(instruction.shape().tuple_shapes(i));
    }
    return costs;
  }

  // Some read or write a part only.
  void LimitTraffic(const HloInstructionProto& instruction, std::vector<double>& operands, double& output) const {
    const std::string& opcode = instruction.opcode();
    if (opcode == "slice" || opcode == "dynamic-slice" || opcode == "gather") {
      if (!operands.empty()) operands[0] = output;
    } else if (opcode == "dynamic-update-slice" && operands.size() > 1) {
      operands[0] = 0;
      output = operands[1];
    } else if (opcode == "scatter" && operands.size() > 2) {
      operands[0] = operands[2];
      output = operands[2];
    }
  }

  Costs OfArithmetic(const HloInstructionProto& instruction) {
    const std::string& opcode = instruction.opcode();
    const double elements = Elements(instruction.shape());
    if (IsTranscendental(opcode)) return {{kTranscendentals, elements}};
    if (IsElementwise(opcode)) return {{kFlops, elements}};
    if (opcode == "dot") return {{kFlops, OfDot(instruction)}};
    if (opcode == "ragged-dot") return {{kFlops, OfDot(instruction)}};
    if (opcode == "convolution") return {{kFlops, OfConvolution(instruction)}};
    if (opcode == "reduce") return OfReduction(instruction, InputElements(instruction) - OutputElements(instruction));
    if (opcode == "reduce-window")
      return OfReduction(instruction, (WindowElements(instruction) - 1) * OutputElements(instruction));
    if (opcode == "select-and-scatter") return OfSelectAndScatter(instruction);
    if (opcode == "map") return Scaled(instruction, elements);
    if (opcode == "scatter") return Scaled(instruction, Elements(OperandShape(instruction, 2)));
    if (opcode == "sort") return {{kFlops, OfSort(instruction)}};
    if (opcode == "fft") return {{kFlops, OfFft(instruction)}};
    if (opcode == "triangular-solve") return {{kFlops, OfTriangularSolve(instruction)}};
    if (opcode == "cholesky") return {{kFlops, OfCholesky(instruction)}};
    if (IsOneOf(opcode, {"all-reduce", "all-reduce-start", "reduce-scatter"}))
      return {{kFlops, LeafElements(instruction)}};
    return {};
  }

  static double LeafElements(const HloInstructionProto& instruction) {
    double elements = 0;
    for (const ShapeProto& leaf : Leaves(instruction.shape())) elements += Elements(leaf);
    return elements;
  }
  static double OutputElements(const HloInstructionProto& instruction) {
    return Elements(Leaves(instruction.shape()).front());
  }
  double InputElements(const HloInstructionProto& instruction) const { return Elements(OperandShape(instruction, 0)); }
  static double WindowElements(const HloInstructionProto& instruction) {
    double elements = 1;
    for (const WindowDimension& dimension : instruction.window().dimensions()) {
      elements *= static_cast<double>(dimension.size());
    }
    return elements;
  }

  double OfDot(const HloInstructionProto& instruction) const {
    const ShapeProto& left = OperandShape(instruction, 0);
    double contracted = 1;
    for (int64_t dimension : instruction.dot_dimension_numbers().lhs_contracting_dimensions()) {
      if (dimension >= 0 && dimension < left.dimensions_size()) {
        contracted *= static_cast<double>(left.dimensions(static_cast<int>(dimension)));
      }
    }
    return kFlopsOfMultiplyAdd * Elements(instruction.shape()) * contracted;
  }

  double OfConvolution(const HloInstructionProto& instruction) const {
    const ShapeProto& input = OperandShape(instruction, 0);
    const ShapeProto& kernel = OperandShape(instruction, 1);
    const ShapeProto& output = instruction.shape();
    const ConvolutionDimensionNumbers& numbers = instruction.convolution_dimension_numbers();
    auto size = [](const ShapeProto& shape, int64_t dimension) {
      return dimension >= 0 && dimension < shape.dimensions_size() ? shape.dimensions(static_cast<int>(dimension)) : 1;
    };
    double positions = 1;
    for (int i = 0; i < instruction.window().dimensions_size() && i < numbers.input_spatial_dimensions_size() &&
                    i < numbers.output_spatial_dimensions_size();
         ++i) {
      positions *= ValidPositions(instruction.window().dimensions(i), size(input, numbers.input_spatial_dimensions(i)),
                                  size(output, numbers.output_spatial_dimensions(i)));
    }
    return kFlopsOfMultiplyAdd * positions *
           static_cast<double>(size(kernel, numbers.kernel_input_feature_dimension())) *
           static_cast<double>(size(output, numbers.output_feature_dimension())) *
           static_cast<double>(size(output, numbers.output_batch_dimension()));
  }

  // The arithmetic, not the traffic, of `times` runs of the computation that the instruction applies.
  Costs Scaled(const HloInstructionProto& instruction, double times) {
    Costs costs;
    if (instruction.called_computation_ids().empty()) return costs;
    for (const auto& [name, value] : OfComputation(instruction.called_computation_ids(0))) {
      if (name == kFlops || name == kTranscendentals) costs[name] = value * times;
    }
    return costs;
  }

  Costs OfReduction(const HloInstructionProto& instruction, double times) { return Scaled(instruction, times); }

  Costs OfSelectAndScatter(const HloInstructionProto& instruction) {
    const double sources = Elements(OperandShape(instruction, 1));
    Costs costs = Scaled(instruction, sources * (WindowElements(instruction) - 1));
    if (instruction.called_computation_ids_size() < 2) return costs;
    for (const auto& [name, value] : OfComputation(instruction.called_computation_ids(1))) {
      if (name == kFlops || name == kTranscendentals) costs[name] += value * sources;
    }
    return costs;
  }

  double OfSort(const HloInstructionProto& instruction) const {
    const double elements = InputElements(instruction);
    return elements * std::ceil(std::log2(std::max(1.0, elements)));
  }

  double OfFft(const HloInstructionProto& instruction) const {
    constexpr double kMultiplyAddsOfComplexMultiply = 4;
    double steps = 1;
    for (int64_t length : instruction.fft_length()) steps *= std::floor(std::log2(std::max<int64_t>(1, length)));
    return kFlopsOfMultiplyAdd * kMultiplyAddsOfComplexMultiply * steps * InputElements(instruction);
  }

  double OfTriangularSolve(const HloInstructionProto& instruction) const {
    const ShapeProto& b = OperandShape(instruction, 1);
    if (b.dimensions_size() < 2) return 0;
    return kFlopsOfMultiplyAdd * InputElements(instruction) *
           static_cast<double>(b.dimensions(b.dimensions_size() - 1));
  }

  double OfCholesky(const HloInstructionProto& instruction) const {
    const ShapeProto& a = OperandShape(instruction, 0);
    if (a.dimensions_size() < 2) return 0;
    return Elements(a) * static_cast<double>(a.dimensions(a.dimensions_size() - 1)) / 3;
  }

  // What is inside of a fusion stays in registers and caches: traffic is that of its operands and result.
  Costs OfFusion(const HloInstructionProto& fusion) {
    if (fusion.called_computation_ids().empty()) return OfTraffic(fusion);
    const int64_t called = fusion.called_computation_ids(0);
    Costs costs = OfComputation(called);
    const Parameters parameters = ReadParameters(called);
    const double output = FusionOutputBytes(called, fusion);
    double bytes = output + parameters.constant_bytes;
    for (int i = 0; i < fusion.operand_ids_size(); ++i) {
      const double whole = Bytes(OperandShape(fusion, i));
      auto read = parameters.bytes.find(i);
      const double operand = read == parameters.bytes.end() ? whole : read->second;
      costs[OperandBytesKey(i)] = operand;
      costs[UtilizationKey(i)] = 1;
      bytes += operand;
    }
    for (int i = 0; i < fusion.shape().tuple_shapes_size(); ++i) {
      costs[absl::StrCat("bytes accessedout{", i, "}")] = Bytes(fusion.shape().tuple_shapes(i));
    }
    costs[kOutputBytes] = output;
    costs[kBytes] = bytes;
    return costs;
  }

  struct Parameters {
    std::map<int64_t, double> bytes;  // by parameter, of those that are read in part only
    double constant_bytes = 0;
  };

  Parameters ReadParameters(int64_t computation) const {
    Parameters result;
    auto found = computations_.find(computation);
    if (found == computations_.end()) return result;
    for (const HloInstructionProto& instruction : found->second->instructions()) {
      if (instruction.opcode() == "constant" && Elements(instruction.shape()) > 1) {
        result.constant_bytes += Bytes(instruction.shape());
      }
      if (instruction.opcode() != "parameter") continue;
      const double read = BytesRead(*found->second, instruction);
      if (read < Bytes(instruction.shape())) result.bytes[instruction.parameter_number()] = read;
    }
    return result;
  }

  // Of a parameter of a fused computation: all of it, unless all that use it take slices, which are read, or write
  // slices into it.
  double BytesRead(const HloComputationProto& computation, const HloInstructionProto& parameter) const {
    double bytes = 0;
    const double whole = Bytes(parameter.shape());
    for (const HloInstructionProto& user : computation.instructions()) {
      for (int i = 0; i < user.operand_ids_size(); ++i) {
        if (user.operand_ids(i) != parameter.id()) continue;
        if (i == 0 && IsOneOf(user.opcode(), {"slice", "dynamic-slice"})) {
          bytes += Bytes(user.shape());
        } else if (i != 0 || user.opcode() != "dynamic-update-slice") {
          return whole;
        }
      }
    }
    return std::min(bytes, whole);
  }

  // A slice that is written in place is all that is written.
  double FusionOutputBytes(int64_t called, const HloInstructionProto& fusion) const {
    const HloInstructionProto* root = Root(called);
    if (root != nullptr && root->opcode() == "dynamic-update-slice") return Bytes(OperandShape(*root, 1));
    if (root == nullptr || root->opcode() != "tuple") return LeafBytes(fusion.shape());
    double bytes = 0;
    for (int64_t id : root->operand_ids()) {
      auto element = instructions_.find(id);
      if (element == instructions_.end()) continue;
      const bool in_place = element->second->opcode() == "dynamic-update-slice";
      bytes += in_place ? Bytes(OperandShape(*element->second, 1)) : LeafBytes(element->second->shape());
    }
    return bytes;
  }

  absl::flat_hash_map<int64_t, const HloComputationProto*> computations_;
  absl::flat_hash_map<int64_t, const HloInstructionProto*> instructions_;
  absl::flat_hash_map<int64_t, Costs> costs_;  // of computations, as far as known
};

}  // namespace

std::map<std::string, double> AnalyzeCosts(const HloModuleProto& module) {
  Costs costs = Analyzer(module).OfComputation(module.entry_computation_id());
  std::erase_if(costs, [](const auto& cost) { return cost.second == 0; });
  return costs;
}

}  // namespace openpathways::hlo
