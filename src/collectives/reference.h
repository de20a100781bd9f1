// For tests: the results that collectives must have, computed element by element from the definition of the kinds.
#ifndef OPENPATHWAYS_COLLECTIVES_REFERENCE_H_
#define OPENPATHWAYS_COLLECTIVES_REFERENCE_H_

#include <string>
#include <vector>

#include "collectives/engine.h"
#include "hlo/collective.pb.h"

namespace openpathways::collectives {

// Bytes of the arrays of one device.
using DeviceArrays = std::vector<std::string>;

// `operands[d]` are those of logical device d; so are the results. Rounding follows reduce.h: the devices of a worker
// first, then the workers. Results of ragged all-to-all keep initial values where nothing arrives.
std::vector<DeviceArrays> ReferenceResults(const hlo::CollectiveDescriptor& descriptor, const Placement& placement,
                                           const std::vector<DeviceArrays>& operands);

// The bytes of an array in memory.
size_t ByteSize(const hlo::CollectiveDescriptor::Array& array);

// Whether two arrays have the same elements, bit for bit. Bits behind the last packed element do not count.
bool SameArray(const hlo::CollectiveDescriptor::Array& array, const std::string& a, const std::string& b);

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_REFERENCE_H_
