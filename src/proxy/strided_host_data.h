// Host data in another order than row-major.
#ifndef OPENPATHWAYS_PROXY_STRIDED_HOST_DATA_H_
#define OPENPATHWAYS_PROXY_STRIDED_HOST_DATA_H_

#include <cstdint>
#include <vector>

#include "base/future.h"
#include "ifrt/dtype.h"
#include "ifrt/host_buffer.h"

namespace openpathways::proxy {

// Reads all of `data`, the dense row-major bytes of an array, and spreads them by `byte_strides` (one per dimension,
// positive multiples of the element size wherever the dimension has more than one element). Gaps are zero. Holds the
// whole result in memory, so strides that would leave more gaps than a few times the data are RESOURCE_EXHAUSTED.
Future<ifrt::HostDataRef> ToStrided(Future<ifrt::HostDataRef> data, ifrt::DType dtype, ifrt::Shape shape,
                                    std::vector<int64_t> byte_strides);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_STRIDED_HOST_DATA_H_
