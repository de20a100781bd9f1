#include "compiler/text_dump.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "compiler/compile_options.pb.h"

namespace openpathways::compiler {
namespace {

void SetText(CompileOptionsWithOverrides& options, const std::string& name, const std::string& text) {
  (*options.mutable_env_option_overrides())[name].set_string_field(text);
}
void SetFlag(CompileOptionsWithOverrides& options, const std::string& name) {
  (*options.mutable_env_option_overrides())[name].set_bool_field(true);
}

}  // namespace

absl::StatusOr<std::string> WithTextDump(absl::string_view compile_options) {
  CompileOptionsWithOverrides options;
  if (!options.ParseFromArray(compile_options.data(), static_cast<int>(compile_options.size()))) {
    return absl::InvalidArgumentError("the compile options are no serialized xla.CompileOptionsProto");
  }
  SetText(options, "xla_dump_to", "-");
  SetFlag(options, "xla_dump_hlo_as_text");
  SetText(options, "xla_dump_hlo_module_re", ".*");
  SetFlag(options, "xla_llvm_disable_expensive_passes");
  return options.SerializeAsString();
}

// XLA writes "*** Begin module_0001.NAME.cpu_after_optimizations.txt ***", the text, and "*** End " with the same.
absl::StatusOr<std::string> FindOptimizedText(absl::string_view dump) {
  static constexpr absl::string_view kBegin = "*** Begin ", kEnd = "\n*** End ", kStars = " ***\n";
  static constexpr absl::string_view kWanted = "after_optimizations.txt";
  for (size_t at = dump.find(kBegin); at != dump.npos; at = dump.find(kBegin, at + 1)) {
    const size_t name = at + kBegin.size();
    const size_t text = dump.find(kStars, name);
    if (text == dump.npos) break;
    if (!absl::EndsWith(dump.substr(name, text - name), kWanted)) continue;
    const size_t first = text + kStars.size();
    const size_t end = dump.find(kEnd, first);
    if (end == dump.npos) break;
    return std::string(dump.substr(first, end - first));
  }
  return absl::NotFoundError("the plugin's compiler has written no text of the optimized program");
}

absl::StatusOr<std::unique_ptr<CaughtOutput>> CaughtOutput::Begin() {
  std::fflush(stdout);
  const int memory = memfd_create("standard output", MFD_CLOEXEC);
  if (memory < 0) return absl::ErrnoToStatus(errno, "memory for the text of a program");
  const int saved = dup(STDOUT_FILENO);
  if (saved < 0 || dup2(memory, STDOUT_FILENO) < 0) {
    const int error = errno;
    close(memory);
    if (saved >= 0) close(saved);
    return absl::ErrnoToStatus(error, "catching the standard output");
  }
  return std::unique_ptr<CaughtOutput>(new CaughtOutput(memory, saved));
}

CaughtOutput::~CaughtOutput() {
  Restore();
  close(memory_);
}

void CaughtOutput::Restore() {
  if (saved_ < 0) return;
  std::fflush(stdout);
  dup2(saved_, STDOUT_FILENO);
  close(saved_);
  saved_ = -1;
}

absl::StatusOr<std::string> CaughtOutput::End() {
  Restore();
  const off_t size = lseek(memory_, 0, SEEK_END);
  if (size < 0) return absl::ErrnoToStatus(errno, "the text of a program");
  std::string text(static_cast<size_t>(size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = pread(memory_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::ErrnoToStatus(errno, "the text of a program");
    done += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace openpathways::compiler
