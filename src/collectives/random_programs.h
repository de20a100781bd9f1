// For tests: random collectives with random operands, and placements of devices on workers.
#ifndef OPENPATHWAYS_COLLECTIVES_RANDOM_PROGRAMS_H_
#define OPENPATHWAYS_COLLECTIVES_RANDOM_PROGRAMS_H_

#include <random>
#include <vector>

#include "collectives/element_type.h"
#include "collectives/engine.h"
#include "collectives/reference.h"
#include "hlo/collective.pb.h"

namespace openpathways::collectives {

using Random = std::mt19937_64;

inline int64_t Uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// 1 to `max_workers` workers with 1 to 4 devices each, in any order.
Placement RandomPlacement(Random& random, int max_workers);

// A legal collective of the kind over all devices of the placement. `max_bytes` limits one operand, about.
hlo::CollectiveDescriptor RandomCollective(Random& random, hlo::CollectiveDescriptor::Kind kind, PrimitiveType type,
                                           const Placement& placement, int64_t max_bytes);

// Operands for every device of the placement; offsets and sizes of ragged ones fit together.
std::vector<DeviceArrays> RandomOperands(Random& random, const hlo::CollectiveDescriptor& descriptor,
                                         const Placement& placement);

// All types that are moved, and those that are also reduced.
const std::vector<PrimitiveType>& AllTypes();
bool IsReducible(PrimitiveType type);
// Whether AND, OR, XOR, or MIN, MAX make sense.
bool HasBitwise(PrimitiveType type);
bool HasOrder(PrimitiveType type);

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_RANDOM_PROGRAMS_H_
