#include "ifrt/backend.h"

#include <utility>

#include "base/status.h"
#include "ifrt/cluster_backend.h"

namespace openpathways::ifrt {

absl::StatusOr<std::unique_ptr<Backend>> Backend::Create(Options options) {
  compiler::Compiler::Options compile;
  compile.binary = options.compiler_binary;
  compile.plugin = options.plugin;
  compile.cache_directory = options.compilation_cache_directory;
  compile.cache_directory_bytes = options.compilation_cache_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<compiler::Compiler> compiler, compiler::Compiler::Create(std::move(compile)));
  ASSIGN_OR_RETURN(std::unique_ptr<cluster::Cluster> cluster,
                   cluster::Cluster::Create(cluster::Membership::Connect(
                       {.resource_manager_address = std::move(options.resource_manager_address),
                        .proxy_address = std::move(options.proxy_address)})));
  return MakeClusterBackend(std::move(cluster), std::move(compiler));
}

}  // namespace openpathways::ifrt
