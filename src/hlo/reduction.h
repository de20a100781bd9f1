// What the computation of an all-reduce or reduce-scatter does.
#ifndef OPENPATHWAYS_HLO_REDUCTION_H_
#define OPENPATHWAYS_HLO_REDUCTION_H_

#include "absl/status/statusor.h"
#include "hlo/collective.pb.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// Recognizes op(a, b) of the two parameters, in any order, also if XLA has put conversions around it (it computes
// narrow floats in wider ones). UNIMPLEMENTED names what it found.
absl::StatusOr<CollectiveDescriptor::Reduction> ReadReduction(const HloComputationProto& computation);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_REDUCTION_H_
