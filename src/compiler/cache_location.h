// Where compiled programs are kept, as flags and environment say.
#ifndef OPENPATHWAYS_COMPILER_CACHE_LOCATION_H_
#define OPENPATHWAYS_COMPILER_CACHE_LOCATION_H_

#include <cstdint>
#include <string>

namespace openpathways::compiler {

// What switches the persistent cache off where a directory is expected.
inline constexpr char kNoCache[] = "off";
// Environment variables that stand for the flags of the same names.
inline constexpr char kCacheDirectoryVariable[] = "PATHWAYS_COMPILATION_CACHE_DIR";
inline constexpr char kCacheMebibytesVariable[] = "PATHWAYS_COMPILATION_CACHE_MIB";
inline constexpr int64_t kDefaultCacheMebibytes = 10 * 1024;

struct CacheLocation {
  std::string directory;  // empty: nothing is kept
  std::string reason;     // for the log, if nothing is kept though a place was named
};

// `directory` (a flag, or the environment's) if it is not empty; else the folder "compiled_programs" of
// `scratch_location`, which manifests give, if that is in a file system. There is no access to object storage (gs://…):
// a bucket has to be mounted.
CacheLocation FindCacheLocation(const std::string& directory, const std::string& scratch_location);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_CACHE_LOCATION_H_
