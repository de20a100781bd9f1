// What the plugin cannot compile, and what its errors mean to the user whose program did not compile.
#ifndef OPENPATHWAYS_COMPILER_COMPILE_ERRORS_H_
#define OPENPATHWAYS_COMPILER_COMPILE_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace openpathways::compiler {

// UNIMPLEMENTED for a program at which the plugin would end the process: a ragged dot that XLA's old partitioner should
// partition. `program` is MLIR, in text or bytecode, and `compile_options` a serialized xla.CompileOptionsProto.
absl::Status CheckCompilable(absl::string_view program, const std::string& compile_options);

// The error of a compile, with what can be done about it if that is known: custom calls that nobody here implements
// become UNIMPLEMENTED, and what needs the client's own process says so. Any other status is returned as it is.
absl::Status ExplainCompileError(const absl::Status& status);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_COMPILE_ERRORS_H_
