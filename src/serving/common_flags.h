// The flags and environment variables that manifests give to all of Pathways' servers alike.
#ifndef OPENPATHWAYS_SERVING_COMMON_FLAGS_H_
#define OPENPATHWAYS_SERVING_COMMON_FLAGS_H_

#include <string>
#include <utility>
#include <vector>

#include "base/flags.h"

namespace openpathways::serving {

struct CommonFlags {
  int64_t verbosity = 0;
  std::string temporary_flags;
};

// Adds them to a server's own. Those that mean nothing here are ignored, each with its reason.
void AddCommonFlags(FlagSet& set, CommonFlags& flags);

// After FlagSet::Parse: sets the log's level (--v=1: debug, from 2 on: trace; PATHWAYS_LOG_LEVEL, if set, counts more)
// and logs the temporary flags by name.
void ApplyCommonFlags(const CommonFlags& flags);

// Logs those of these variables that are set, with the reason why they are not used. In addition to them the ones that
// concern no server of ours.
void LogUnusedEnvironment(const std::vector<std::pair<std::string, std::string>>& names_and_reasons);

// The list in --temporary_flags_for_debugging: "a=b;;;c=d".
std::vector<std::string> SplitTemporaryFlags(const std::string& list);

}  // namespace openpathways::serving

#endif  // OPENPATHWAYS_SERVING_COMMON_FLAGS_H_
