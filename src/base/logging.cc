#include "base/logging.h"

#include <cstdlib>

#include "spdlog/sinks/stdout_sinks.h"

namespace openpathways {

void InitLogging(int argc, const char* const* argv) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("pathways"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%f %L %t] %v", spdlog::pattern_time_type::utc);
  if (const char* level = std::getenv("PATHWAYS_LOG_LEVEL")) spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
  for (int i = 0; i < argc; ++i) spdlog::info("argv[{}]: '{}'", i, argv[i]);
}

}  // namespace openpathways
