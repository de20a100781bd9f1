// How the text of an optimized program is got from XLA: it is asked to write its dumps to the standard output, which is
// caught meanwhile.
#ifndef OPENPATHWAYS_COMPILER_TEXT_DUMP_H_
#define OPENPATHWAYS_COMPILER_TEXT_DUMP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace openpathways::compiler {

// `compile_options` (serialized xla.CompileOptionsProto) with option overrides that make XLA write the module as text
// to the standard output, and that leave out what costs time after the text is fixed.
absl::StatusOr<std::string> WithTextDump(absl::string_view compile_options);

// The text of the optimized module in what XLA has written. NOT_FOUND if there is none.
absl::StatusOr<std::string> FindOptimizedText(absl::string_view dump);

// From Begin to End (or the destructor) the process's standard output goes to memory. One at a time in a process.
class CaughtOutput {
 public:
  static absl::StatusOr<std::unique_ptr<CaughtOutput>> Begin();
  ~CaughtOutput();
  // What has been written since Begin.
  absl::StatusOr<std::string> End();

 private:
  CaughtOutput(int memory, int saved) : memory_(memory), saved_(saved) {}
  void Restore();

  const int memory_;
  int saved_;  // -1 once it is back in its place
};

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_TEXT_DUMP_H_
