#include "compiler/cache_location.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace openpathways::compiler {

CacheLocation FindCacheLocation(const std::string& directory, const std::string& scratch_location) {
  if (directory == kNoCache) return {};
  const bool own = !directory.empty();
  const std::string& named = own ? directory : scratch_location;
  if (named.empty()) return {};
  absl::string_view path = named;
  absl::ConsumePrefix(&path, "file://");
  if (path.empty() || path[0] != '/') {
    return {"", absl::StrCat(named,
                             " is no absolute path: compiled programs are cached in memory only (a bucket has to be "
                             "mounted as a directory)")};
  }
  return {own ? std::string(path) : absl::StrCat(path, "/compiled_programs"), ""};
}

}  // namespace openpathways::compiler
