// Command-line flags of the servers, in the style of Pathways' images: `--name=value`, `--name value`, booleans as
// `--x`, `--nox`, `--x=true`; of a flag that comes twice the last one counts. A flag that we do not know is never
// fatal: it is logged by name and skipped, because public manifests carry many flags that only mean something on
// Google's own servers. The environment, which the servers read too, is looked at in the same spirit.
#ifndef OPENPATHWAYS_BASE_FLAGS_H_
#define OPENPATHWAYS_BASE_FLAGS_H_

#include <cstdint>
#include <map>
#include <optional>
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
  // A flag of Pathways' images that means nothing here: accepted, with or without a value, and logged with the reason,
  // half a sentence.
  void Ignore(std::string name, std::string reason);
  // The same for all flags whose names begin so and that are not registered.
  void IgnorePrefix(std::string prefix, std::string reason);
  // All flags whose names begin so and that are not registered are added to `*target`, as "--name=value" or "--name".
  void Collect(std::string prefix, std::vector<std::string>* target);

  // Reads argv[1..]. Quotes around a value ('x' or "x") are stripped; an empty value of a number or boolean leaves the
  // default. INVALID_ARGUMENT names the flag if a value has the wrong type or is missing. `--help` prints all flags to
  // stdout and exits with 0.
  absl::Status Parse(int argc, const char* const* argv);

  // What was given but not known, as written.
  const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  struct Flag {
    enum class Type { kString, kInt, kBool, kIgnored } type;
    void* target = nullptr;
    std::string text;  // help, or why it is ignored
  };
  struct Prefix {
    std::string prefix;
    std::string reason;
    std::vector<std::string>* target = nullptr;  // null: ignored
  };
  static absl::Status Assign(absl::string_view name, const Flag& flag, absl::string_view value);
  const Prefix* FindPrefix(absl::string_view name) const;
  void PrintHelp(absl::string_view program) const;

  std::map<std::string, Flag> flags_;
  std::vector<Prefix> prefixes_;
  std::vector<std::string> unknown_;
};

// An environment variable, without quotes around its value; "" if it is not set.
std::string EnvironmentValue(const std::string& name);
// The first of the variables that holds a number; one that is set to something else is logged.
std::optional<int64_t> EnvironmentNumber(const std::vector<std::string>& names);

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_FLAGS_H_
