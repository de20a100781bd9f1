// What a compiled program takes and gives, read from its optimized HLO.
#ifndef OPENPATHWAYS_HLO_PROGRAM_H_
#define OPENPATHWAYS_HLO_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

struct ArrayShape {
  int element_type = 0;             // xla.PrimitiveType
  std::vector<int64_t> dimensions;  // on one device
  std::vector<int64_t> minor_to_major;
};

struct ProgramShape {
  std::string name;
  std::vector<ArrayShape> parameters;  // tuples are opened
  std::vector<ArrayShape> results;
  // Serialized xla.OpSharding, one a parameter and one a result; empty vectors if the module does not say (programs of
  // one device). An empty string in them is a sharding too: REPLICATED is the default of all its fields.
  std::vector<std::string> parameter_shardings;
  std::vector<std::string> result_shardings;
  std::vector<int64_t> donated_parameters;  // ascending
  // It has neither collectives (in our form or XLA's) nor loops, branches or transfers to the host: each run takes
  // about the same time and waits for nobody.
  bool straight_line = true;
  // It has no loops, branches or transfers and so few steps, collectives among them, that XLA's CPU runtime does one
  // after the other on the thread that calls it, instead of some at the same time on threads of its own. (Fact:
  // openxla/xla, xla/backends/cpu/runtime/thunk_executor.h: up to 8 thunks.)
  bool few_steps = true;
};

// INVALID_ARGUMENT if a shape is neither array, token nor a tuple of these, or the shardings do not fit the shapes.
absl::StatusOr<ProgramShape> ReadProgramShape(const HloModuleProto& module);
// The same from a serialized HloModuleProto, as pjrt::LoadedExecutable::OptimizedHlo gives it.
absl::StatusOr<ProgramShape> ReadProgramShape(absl::string_view serialized_module);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_PROGRAM_H_
