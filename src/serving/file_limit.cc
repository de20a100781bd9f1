#include "serving/file_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "base/logging.h"

namespace openpathways::serving {

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    spdlog::warn("cannot raise the limit of open files ({}) to {}: {}", before, limit.rlim_max, std::strerror(errno));
  }
}

}  // namespace openpathways::serving
