// The handlers of the custom calls in hlo/numeric_call.h.
#ifndef OPENPATHWAYS_NUMERICS_HANDLERS_H_
#define OPENPATHWAYS_NUMERICS_HANDLERS_H_

#include "absl/status/status.h"
#include "pjrt/pjrt.h"

namespace openpathways::numerics {

// Lets programs of the plugin call LAPACK and BLAS. Once per plugin and process, before any program is loaded.
absl::Status RegisterHandlers(pjrt::Plugin& plugin);

}  // namespace openpathways::numerics

#endif  // OPENPATHWAYS_NUMERICS_HANDLERS_H_
