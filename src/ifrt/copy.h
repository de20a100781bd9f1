// Copies of arrays to other devices or memories.
#ifndef OPENPATHWAYS_IFRT_COPY_H_
#define OPENPATHWAYS_IFRT_COPY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cluster/cluster.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

// See Backend::CopyArrays. All shards that go from one worker to another travel by one command to each of the two.
absl::StatusOr<std::vector<ArrayRef>> CopyToDevices(const cluster::Cluster& cluster, absl::Span<const ArrayRef> arrays,
                                                    const std::optional<DeviceList>& devices,
                                                    const std::optional<std::string>& memory_kind,
                                                    CopySemantics semantics);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_COPY_H_
