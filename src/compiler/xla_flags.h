// XLA's flags for all programs of a proxy server: from its command line (--xla_*) and its environment (XLA_FLAGS).
#ifndef OPENPATHWAYS_COMPILER_XLA_FLAGS_H_
#define OPENPATHWAYS_COMPILER_XLA_FLAGS_H_

#include <string>
#include <vector>

namespace openpathways::compiler {

// The plugin takes these flags from the variable XLA_FLAGS when it makes its first client, and ends the process if
// there is one among them that it does not know: manifests name flags of another platform's compiler. So this asks it,
// in a compiler process started for the purpose, sets XLA_FLAGS to those that it knows, for the processes that are
// started from here, and returns the others. The flags come from the present XLA_FLAGS (which may name a file) and
// `more`.
//
// REQUIRES: no other threads, which might read the environment.
std::vector<std::string> SetXlaFlags(const std::string& compiler_binary, const std::string& plugin,
                                     const std::vector<std::string>& more);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_XLA_FLAGS_H_
