#include "base/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace openpathways {
namespace {

namespace fs = std::filesystem;

// The folders of the process's control groups for `controller`, innermost first: of version 2 (one hierarchy for all)
// and of version 1 (one for each controller). In a container whose /proc still names the groups of the machine only the
// outermost folder exists, and is the container's own.
std::vector<fs::path> GroupFolders(const std::string& root, absl::string_view controller) {
  std::vector<fs::path> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "0::/path" or "4:cpu,cpuacct:/path"
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    const bool version2 = fields[1].empty();
    if (!version2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    const fs::path hierarchy = root + (version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + std::string(controller));
    for (fs::path path = fs::path(fields[2]).relative_path(); !path.empty(); path = path.parent_path()) {
      folders.push_back(hierarchy / path);
    }
    folders.push_back(hierarchy);
  }
  return folders;
}

// "max", which stands for no limit, is no number.
bool ReadNumber(const fs::path& path, int64_t& number) { return bool(std::ifstream(path) >> number); }

}  // namespace

namespace machine_internal {

int AvailableCpus(const std::string& root, int scheduled) {
  int cpus = std::max(1, scheduled);
  for (const fs::path& folder : GroupFolders(root, "cpu")) {
    int64_t quota = 0, period = 0;
    std::ifstream version2(folder / "cpu.max");
    if (!(version2 >> quota >> period) &&
        !(ReadNumber(folder / "cpu.cfs_quota_us", quota) && ReadNumber(folder / "cpu.cfs_period_us", period))) {
      continue;
    }
    if (quota <= 0 || period <= 0) continue;
    cpus = static_cast<int>(std::min<int64_t>(cpus, (quota + period - 1) / period));
  }
  return cpus;
}

size_t MemoryLimit(const std::string& root, size_t physical) {
  size_t limit = physical;
  for (const fs::path& folder : GroupFolders(root, "memory")) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      int64_t bytes = 0;
      if (ReadNumber(folder / name, bytes) && bytes > 0) limit = std::min(limit, static_cast<size_t>(bytes));
    }
  }
  return limit;
}

}  // namespace machine_internal

int AvailableCpus() {
  static const int cpus = [] {
    cpu_set_t set;
    const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
    return machine_internal::AvailableCpus(
        "", known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency()));
  }();
  return cpus;
}

size_t MemoryLimit() {
  struct sysinfo info {};
  sysinfo(&info);
  return machine_internal::MemoryLimit("", static_cast<size_t>(info.totalram) * info.mem_unit);
}

}  // namespace openpathways
