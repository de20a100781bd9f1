#include "base/installation.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace openpathways {
namespace fs = std::filesystem;

std::string BinaryDirectory() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

std::string DefaultPluginPath() {
  if (const char* path = std::getenv("PATHWAYS_PJRT_PLUGIN"); path != nullptr && *path != '\0') {
    return fs::absolute(path).lexically_normal().string();
  }
  return fs::absolute(fs::path(BinaryDirectory()) / "../../../.deps/plugin/pjrt_c_api_cpu_plugin.so")
      .lexically_normal()
      .string();
}

}  // namespace openpathways
