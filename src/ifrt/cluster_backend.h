// The Backend over a cluster of workers and a compiler process.
#ifndef OPENPATHWAYS_IFRT_CLUSTER_BACKEND_H_
#define OPENPATHWAYS_IFRT_CLUSTER_BACKEND_H_

#include <memory>

#include "cluster/cluster.h"
#include "compiler/compiler.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

std::unique_ptr<Backend> MakeClusterBackend(std::unique_ptr<cluster::Cluster> cluster,
                                            std::unique_ptr<compiler::Compiler> compiler);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_CLUSTER_BACKEND_H_
