// Names of memories.
#ifndef OPENPATHWAYS_IFRT_MEMORY_KIND_H_
#define OPENPATHWAYS_IFRT_MEMORY_KIND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace openpathways::ifrt {

// INVALID_ARGUMENT, listing the kinds, unless `kind` is "" or one of kMemoryKinds.
absl::Status CheckMemoryKind(absl::string_view kind);

// Whether both name the same memory; "" is the default one.
bool IsSameMemory(absl::string_view a, absl::string_view b);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_MEMORY_KIND_H_
