#include "compiler/xla_flags.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/logging.h"
#include "compiler/child_process.h"

namespace openpathways::compiler {
namespace {

constexpr char kVariable[] = "XLA_FLAGS";

std::vector<std::string> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
}

std::vector<std::string> FlagsFromEnvironment() {
  const char* value = std::getenv(kVariable);
  std::string text = value == nullptr ? "" : value;
  if (!text.empty() && text[0] != '-') {
    std::ostringstream content;
    content << std::ifstream(text).rdbuf();
    text = content.str();
  }
  return Words(text);
}

// Those of `flags` that the plugin complained about: "Unknown flags in XLA_FLAGS: --xla_a=1 --xla_b".
std::vector<std::string> ComplainedAbout(const std::string& output, const std::vector<std::string>& flags) {
  std::vector<std::string> found;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    if (!absl::StrContains(line, "XLA_FLAGS")) continue;
    for (const std::string& word : Words(line)) {
      if (std::find(flags.begin(), flags.end(), word) != flags.end()) found.push_back(word);
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> SetXlaFlags(const std::string& compiler_binary, const std::string& plugin,
                                     const std::vector<std::string>& more) {
  std::vector<std::string> flags = FlagsFromEnvironment();
  flags.insert(flags.end(), more.begin(), more.end());
  std::vector<std::string> refused;
  while (!flags.empty()) {
    setenv(kVariable, absl::StrJoin(flags, " ").c_str(), /*overwrite=*/1);
    const ChildRun run = RunChild(compiler_binary, {"--plugin=" + plugin, "--check_only"});
    if (run.succeeded) return refused;
    std::vector<std::string> unknown = ComplainedAbout(run.output, flags);
    if (unknown.empty()) {
      spdlog::error("no compiler can be started with XLA_FLAGS={} ({}): it goes without\n{}", absl::StrJoin(flags, " "),
                    run.end, run.output);
      unknown = flags;
    }
    std::erase_if(flags, [&](const std::string& flag) {
      return std::find(unknown.begin(), unknown.end(), flag) != unknown.end();
    });
    std::move(unknown.begin(), unknown.end(), std::back_inserter(refused));
  }
  unsetenv(kVariable);
  return refused;
}

}  // namespace openpathways::compiler
