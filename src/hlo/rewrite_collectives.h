// Takes the collectives out of a partitioned program, so that its devices may be in many processes.
//
// Each collective becomes a custom call (collective_call.h) that says everything about it in a CollectiveDescriptor.
// Meant for the module that a compiler shows before scheduling (pjrt::Plugin::RegisterHloTransform).
#ifndef OPENPATHWAYS_HLO_REWRITE_COLLECTIVES_H_
#define OPENPATHWAYS_HLO_REWRITE_COLLECTIVES_H_

#include "absl/status/statusor.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// Rewrites all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute, collective-broadcast and
// ragged-all-to-all in every computation. Returns whether there was any. The numbers of replicas and partitions come
// from the module's device assignment. If it fails the module is left half changed.
//
// Errors name the instruction: UNIMPLEMENTED for what no descriptor can say (an unknown reduction, an asynchronous
// pair, a ragged dimension that is not outermost in memory), INVALID_ARGUMENT for groups that make no sense.
absl::StatusOr<bool> RewriteCollectives(HloModuleProto& module);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_REWRITE_COLLECTIVES_H_
