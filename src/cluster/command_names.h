// Which names (buffers, executables) a command uses and which it makes.
#ifndef OPENPATHWAYS_CLUSTER_COMMAND_NAMES_H_
#define OPENPATHWAYS_CLUSTER_COMMAND_NAMES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "worker/worker.pb.h"

namespace openpathways::cluster {

void ForEachUsedName(const worker::Command& command, absl::FunctionRef<void(uint64_t)> use);
// `num_result_buffers`: of an Execute, which says only where its results begin.
void ForEachMadeName(const worker::Command& command, int64_t num_result_buffers,
                     absl::FunctionRef<void(uint64_t)> make);

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_COMMAND_NAMES_H_
