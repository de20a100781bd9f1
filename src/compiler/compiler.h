// Compiles programs in a process of its own, so that a crash of the compiler takes nothing else along.
//
// The controller's end. The child process (binary `pathways_compiler`) holds one PJRT client per number of devices, on
// which a program is compiled once, for a canonical device assignment, with every collective rewritten (hlo/). Workers
// load the serialized result. Results are cached by program and options, in memory and, if wanted, in files.
// Thread-safe.
#ifndef OPENPATHWAYS_COMPILER_COMPILER_H_
#define OPENPATHWAYS_COMPILER_COMPILER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/future.h"
#include "compiler/compiler.pb.h"

namespace openpathways::compiler {

struct CompiledProgram {
  Program program;
  std::string serialized_executable;
  // What it was compiled from, the options as NormalizeCompileOptions makes them. Null in tests without a compiler.
  std::shared_ptr<const std::string> source;
  std::string compile_options;
};
using CompiledProgramRef = std::shared_ptr<const CompiledProgram>;

class Compiler {
 public:
  virtual ~Compiler() = default;  // stops the child

  struct Options {
    std::string binary;  // path of pathways_compiler
    std::string plugin;  // path of the PJRT plugin
    size_t cache_bytes = size_t{1} << 30;
    // Where compiled programs are kept for later processes and for others (program_directory.h); empty: nowhere.
    std::string cache_directory = "";
    int64_t cache_directory_bytes = int64_t{10} << 30;
  };
  // Starts the child. When it has died it is started again for the next request. The program that it was compiling fails
  // with an ABORTED error that says how it ended, which is also what one gets if the plugin cannot be opened; if there
  // were several, they are compiled again one after the other, and only those fail that end it again. Without the binary
  // each compile fails with NOT_FOUND.
  static absl::StatusOr<std::unique_ptr<Compiler>> Create(Options options);

  // `compile_options`: serialized xla.CompileOptionsProto; device ids in it are ignored, so that the same program for
  // other devices is a cache hit. Errors are XLA's.
  virtual Future<CompiledProgramRef> Compile(std::string program, std::string compile_options) = 0;

  // The optimized HLO as text; see CompileService::ProgramText. Takes as long as compiling to there.
  virtual Future<std::string> ProgramText(const CompiledProgram& program) = 0;

  virtual Future<Layout> DefaultLayout(int element_type, std::vector<int64_t> dims) = 0;

  // Process id of the child, for status pages and tests; 0 while there is none.
  virtual int child_pid() const = 0;
};

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_COMPILER_H_
