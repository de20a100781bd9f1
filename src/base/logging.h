// Logging: spdlog everywhere, set up once by main.
#ifndef OPENPATHWAYS_BASE_LOGGING_H_
#define OPENPATHWAYS_BASE_LOGGING_H_

#include "spdlog/spdlog.h"

namespace openpathways {

// Log to stderr with UTC time, level and thread id. The level comes from the environment variable PATHWAYS_LOG_LEVEL
// (trace, debug, info, warn, error); info by default. Then prints argv, one line an argument, in the form that tools
// look for: argv[2]: '--resource_manager_address=…'.
void InitLogging(int argc, const char* const* argv);

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_LOGGING_H_
