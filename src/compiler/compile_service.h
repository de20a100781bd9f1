// What the compiler process does: compiles programs, each on a PJRT client with as many devices as the program has.
// Thread-safe.
#ifndef OPENPATHWAYS_COMPILER_COMPILE_SERVICE_H_
#define OPENPATHWAYS_COMPILER_COMPILE_SERVICE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "compiler/compiler.h"
#include "pjrt/pjrt.h"

namespace openpathways::compiler {

class CompileService {
 public:
  // Opens the plugin and makes it rewrite collectives.
  static absl::StatusOr<std::unique_ptr<CompileService>> Create(const std::string& plugin);

  // `compile_options` as NormalizeCompileOptions made them. Blocks until done, and needs a big stack.
  absl::StatusOr<CompiledProgram> Compile(absl::string_view program, const std::string& compile_options);
  // The optimized HLO as text, as XLA writes it for one device, with collectives and all else that compiling for
  // workers replaces. Compiles the program anew. Also for programs that cannot be compiled for want of what is
  // replaced.
  absl::StatusOr<std::string> ProgramText(absl::string_view program, const std::string& compile_options);
  absl::StatusOr<Layout> DefaultLayout(int element_type, absl::Span<const int64_t> dims);

 private:
  explicit CompileService(std::shared_ptr<pjrt::Plugin> plugin) : plugin_(std::move(plugin)) {}
  absl::StatusOr<std::shared_ptr<pjrt::Client>> ClientFor(int64_t num_devices);

  const std::shared_ptr<pjrt::Plugin> plugin_;
  absl::Mutex text_mu_;  // held while the standard output is caught
  absl::Mutex mu_;
  std::list<std::pair<int64_t, std::shared_ptr<pjrt::Client>>> clients_ ABSL_GUARDED_BY(mu_);  // last used first
};

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_COMPILE_SERVICE_H_
