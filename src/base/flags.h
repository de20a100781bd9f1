// Command-line flags of the servers, in the style of Pathways' images: `--name=value`, `--name value`, booleans as
// `--x`, `--nox`, `--x=true`. A flag that we do not know is never fatal: it is logged by name and skipped, because
// public manifests carry many flags that only mean something on Google's own servers.
#ifndef OPENPATHWAYS_BASE_FLAGS_H_
#define OPENPATHWAYS_BASE_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace openpathways {

class FlagSet {
 public:
  // Registers a flag that is written to `*target` by Parse. `*target` holds the default and must outlive Parse.
  void Add(std::string name, std::string* target, std::string help);
  void Add(std::string name, int64_t* target, std::string help);
  void Add(std::string name, bool* target, std::string help);
  // A flag of Pathways' images that means nothing here: accepted, with or without a value, and logged.
  void Ignore(std::string name);

  // Reads argv[1..]. Quotes around a value ('x' or "x") are stripped. INVALID_ARGUMENT names the flag if a value has
  // the wrong type or is missing. `--help` prints all flags to stdout and exits with 0.
  absl::Status Parse(int argc, const char* const* argv);

  // Flags that were given but neither registered nor ignored, as written; e.g. "--xla_foo=1".
  const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  struct Flag {
    enum class Type { kString, kInt, kBool, kIgnored } type;
    void* target = nullptr;
    std::string help;
  };
  static absl::Status Assign(absl::string_view name, const Flag& flag, absl::string_view value);
  void PrintHelp(absl::string_view program) const;

  std::map<std::string, Flag> flags_;
  std::vector<std::string> unknown_;
};

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_FLAGS_H_
