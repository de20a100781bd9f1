// A collective instruction, checked and laid out for one worker: what every repetition and every device shares.
#ifndef OPENPATHWAYS_COLLECTIVES_INSTRUCTION_H_
#define OPENPATHWAYS_COLLECTIVES_INSTRUCTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "collectives/element_type.h"
#include "collectives/engine.h"
#include "collectives/reduce.h"
#include "hlo/collective.pb.h"

namespace openpathways::collectives {

struct ArrayShape {
  const ElementType* type = nullptr;
  std::vector<int64_t> dims;  // physical, row-major
  int64_t elements = 0;
  size_t bytes = 0;  // in memory; packed types are rounded up

  // The array as [outer, dims[dimension], inner].
  int64_t outer(int64_t dimension) const;
  int64_t inner(int64_t dimension) const;
};

// Devices that take part together. Members are numbered in the order of the instruction's list.
struct Group {
  struct Member {
    int64_t device = 0;
    int worker = 0;  // position in `workers`
    int local = 0;   // position among the members of that worker
  };
  uint32_t index = 0;
  std::vector<Member> members;
  std::vector<WorkerId> workers;             // in the order of their first members
  std::vector<std::vector<int>> members_of;  // per worker: its members, ascending
  int self = -1;                             // this worker's position in `workers`; -1: has no member

  int size() const { return static_cast<int>(members.size()); }
  int num_workers() const { return static_cast<int>(workers.size()); }
  const std::vector<int>& local_members() const { return members_of[self]; }
};

// Immutable once made.
struct Instruction {
  using Kind = hlo::CollectiveDescriptor;
  struct Pair {
    int source = 0;  // members of the one group
    int target = 0;
  };
  struct Place {
    int group = 0;
    int member = 0;
  };

  int32_t number = 0;
  hlo::CollectiveDescriptor::Kind kind = hlo::CollectiveDescriptor::KIND_UNSPECIFIED;
  std::vector<ArrayShape> operands;
  std::vector<ArrayShape> results;
  std::vector<Fold> folds;  // per operand, for reductions
  int64_t dimension = 0;
  std::vector<Group> groups;  // collective-permute: one group of all devices
  std::vector<Pair> pairs;
  absl::flat_hash_map<int64_t, Place> places;  // of each device

  // E.g. "all-reduce 3".
  std::string name() const;

  // INVALID_ARGUMENT or UNIMPLEMENTED if the descriptor makes no sense, for these devices, or asks for what we lack.
  static absl::StatusOr<std::shared_ptr<const Instruction>> Create(const hlo::CollectiveDescriptor& descriptor,
                                                                   const Placement& placement, WorkerId self);
};

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_INSTRUCTION_H_
