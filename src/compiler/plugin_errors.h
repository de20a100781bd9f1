// What the plugin's errors mean to the user whose program did not compile.
#ifndef OPENPATHWAYS_COMPILER_PLUGIN_ERRORS_H_
#define OPENPATHWAYS_COMPILER_PLUGIN_ERRORS_H_

#include "absl/status/status.h"

namespace openpathways::compiler {

// The error of a compile, with what can be done about it if that is known: custom calls that nobody here implements
// become UNIMPLEMENTED, and what needs the client's own process says so. Any other status is returned as it is.
absl::Status ExplainCompileError(const absl::Status& status);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_PLUGIN_ERRORS_H_
