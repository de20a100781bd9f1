#include "numerics/handlers.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hlo/numeric_call.h"
#include "hlo/shape.h"
#include "numerics/lu.h"
#include "numerics/ragged_dot.h"
#include "pjrt/element_type.h"
#include "pjrt/ffi.h"

namespace openpathways::numerics {
namespace {

using pjrt::FfiBuffer;
using pjrt::FfiCall;

int64_t Product(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

// The program says what the buffers are; what it says must be what they are before anything is written.
absl::Status Check(const FfiBuffer& buffer, int element_type, int64_t elements, absl::string_view what) {
  if (buffer.element_type == element_type && Product(buffer.dimensions) == elements) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " should have ", elements, " elements of ",
                                          pjrt::ElementTypeName(element_type), ", but has ", Product(buffer.dimensions),
                                          " of ", pjrt::ElementTypeName(buffer.element_type)));
}

template <typename T>
absl::Status RunLuOf(int64_t batch, int64_t m, int64_t n, const FfiBuffer& matrices,
                     const std::vector<FfiBuffer>& results) {
  return DecomposeLu(batch, m, n, static_cast<const T*>(matrices.data), static_cast<T*>(results[0].data),
                     static_cast<int32_t*>(results[1].data), static_cast<int32_t*>(results[2].data));
}

absl::Status RunLu(const FfiCall& call) {
  if (call.operands().size() != 1 || call.results().size() != 3 || call.operands()[0].dimensions.size() < 2) {
    return absl::InternalError("an LU decomposition has one array of matrices and three results");
  }
  const FfiBuffer& matrices = call.operands()[0];
  const size_t rank = matrices.dimensions.size();
  const int64_t batch = Product(matrices.dimensions.subspan(0, rank - 2));
  const int64_t m = matrices.dimensions[rank - 2], n = matrices.dimensions[rank - 1];
  RETURN_IF_ERROR(Check(call.results()[0], matrices.element_type, batch * m * n, "L and U"));
  RETURN_IF_ERROR(Check(call.results()[1], hlo::kS32, batch * std::min(m, n), "the pivots"));
  RETURN_IF_ERROR(Check(call.results()[2], hlo::kS32, batch * m, "the permutation"));
  switch (matrices.element_type) {
    case hlo::kF32:
      return RunLuOf<float>(batch, m, n, matrices, call.results());
    case hlo::kF64:
      return RunLuOf<double>(batch, m, n, matrices, call.results());
    case hlo::kC64:
      return RunLuOf<std::complex<float>>(batch, m, n, matrices, call.results());
    case hlo::kC128:
      return RunLuOf<std::complex<double>>(batch, m, n, matrices, call.results());
    default:
      return absl::InternalError(
          absl::StrCat("LU decomposition of matrices of ", pjrt::ElementTypeName(matrices.element_type)));
  }
}

absl::StatusOr<hlo::RaggedDot> ReadRaggedDot(const FfiCall& call) {
  hlo::RaggedDot dot;
  for (const hlo::RaggedDot::Field& field : hlo::RaggedDot::Fields()) {
    ASSIGN_OR_RETURN(dot.*field.value, call.IntAttribute(field.attribute));
  }
  return dot;
}

absl::Status CheckRaggedDot(const FfiCall& call, const hlo::RaggedDot& dot) {
  if (call.operands().size() != 3 || call.results().size() != 1) {
    return absl::InternalError("a ragged dot has three operands and one result");
  }
  const int64_t rows = dot.batch * dot.prefix * dot.ragged * dot.suffix;
  const bool contracted = dot.mode == hlo::RaggedDot::kContracted;
  const int64_t right = contracted ? rows * dot.right : dot.batch * dot.groups * dot.left * dot.right;
  const int64_t result = contracted ? dot.groups * dot.batch * dot.left * dot.right : rows * dot.right;
  const int type = call.results()[0].element_type;
  RETURN_IF_ERROR(Check(call.operands()[0], type, rows * dot.left, "the left factor"));
  RETURN_IF_ERROR(Check(call.operands()[1], type, right, "the right factor"));
  RETURN_IF_ERROR(Check(call.results()[0], type, result, "the product"));
  if (dot.mode == hlo::RaggedDot::kAllRows) return absl::OkStatus();
  return Check(call.operands()[2], hlo::kS64, (dot.own_sizes != 0 ? dot.batch * dot.prefix : 1) * dot.groups,
               "the group sizes");
}

template <typename T>
absl::Status RunRaggedDotOf(const FfiCall& call, const hlo::RaggedDot& dot) {
  const std::vector<FfiBuffer>& operands = call.operands();
  return MultiplyRagged(dot, static_cast<const T*>(operands[0].data), static_cast<const T*>(operands[1].data),
                        static_cast<const int64_t*>(operands[2].data), static_cast<T*>(call.results()[0].data));
}

absl::Status RunRaggedDot(const FfiCall& call) {
  ASSIGN_OR_RETURN(const hlo::RaggedDot dot, ReadRaggedDot(call));
  RETURN_IF_ERROR(CheckRaggedDot(call, dot));
  const int type = call.results()[0].element_type;
  switch (type) {
    case hlo::kF32:
      return RunRaggedDotOf<float>(call, dot);
    case hlo::kF64:
      return RunRaggedDotOf<double>(call, dot);
    case hlo::kC64:
      return RunRaggedDotOf<std::complex<float>>(call, dot);
    case hlo::kC128:
      return RunRaggedDotOf<std::complex<double>>(call, dot);
    case hlo::kS32:
      return RunRaggedDotOf<uint32_t>(call, dot);
    case hlo::kS64:
      return RunRaggedDotOf<uint64_t>(call, dot);
    default:
      return absl::InternalError(absl::StrCat("ragged dot of ", pjrt::ElementTypeName(type)));
  }
}

// Computes on the device's own thread, as the plugin does what it compiled itself.
pjrt::FfiHandler Computing(absl::Status (*run)(const FfiCall&)) {
  return [run](FfiCall call) { call.Finish(run(call)); };
}

}  // namespace

absl::Status RegisterHandlers(pjrt::Plugin& plugin) {
  RETURN_IF_ERROR(plugin.RegisterAsyncHandler(hlo::kLuTarget, Computing(RunLu)));
  return plugin.RegisterAsyncHandler(hlo::kRaggedDotTarget, Computing(RunRaggedDot));
}

}  // namespace openpathways::numerics
