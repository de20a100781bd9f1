// An estimate of what a program costs on one device, from its HLO.
#ifndef OPENPATHWAYS_HLO_COST_ANALYSIS_H_
#define OPENPATHWAYS_HLO_COST_ANALYSIS_H_

#include <map>
#include <string>

#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// By XLA's names and in its ways of counting, as JAX shows them where a plugin computes them itself: `flops`,
// `transcendentals`, `bytes accessed` (in sum), `bytes accessed0{}` and `utilization0{}` (by number of operand),
// `bytes accessedout{}`. A loop counts as one run of its body and condition, a branch as its dearest computation, a
// custom call as the bytes that it reads and writes. What is zero is left out. The module should be optimized and
// partitioned; the numbers are those of one device. (Facts: openxla/xla, xla/service/hlo_cost_analysis.h.)
std::map<std::string, double> AnalyzeCosts(const HloModuleProto& module);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_COST_ANALYSIS_H_
