// What the compiler makes of a client's compile options. For their device assignment see pjrt/compile_options.h.
#ifndef OPENPATHWAYS_COMPILER_COMPILE_OPTIONS_H_
#define OPENPATHWAYS_COMPILER_COMPILE_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace openpathways::compiler {

// The options for a compile that is independent of where the program will run and of where the client runs: canonical
// device assignment 0 … n-1, no device ordinal, and none of the client's XLA debug options but the few that users mean
// (they become option overrides); see docs/decisions/005-compile-options.md. Equal requests have equal results, byte
// for byte. INVALID_ARGUMENT if it is no serialized xla.CompileOptionsProto.
absl::StatusOr<std::string> NormalizeCompileOptions(absl::string_view compile_options);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_COMPILE_OPTIONS_H_
