// Collectives done one element after the other, for tests of rewritten programs. All devices are in this process.
#ifndef OPENPATHWAYS_HLO_REFERENCE_COLLECTIVES_H_
#define OPENPATHWAYS_HLO_REFERENCE_COLLECTIVES_H_

#include <map>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "pjrt/ffi.h"

namespace openpathways::hlo {

// One execution of a program. Its address is the user data of the execution.
class ReferenceCollectives {
 public:
  explicit ReferenceCollectives(int devices) : devices_(devices) {}
  void Join(pjrt::FfiCall call);

 private:
  const int devices_;
  absl::Mutex mu_;
  std::map<std::pair<int, int>, int> repetitions_;                       // by (device, instruction): how often it came
  std::map<std::pair<int, int>, std::map<int, pjrt::FfiCall>> waiting_;  // by (instruction, repetition), device
};

// The handler of `openpathways.collective`.
void HandleReferenceCollective(pjrt::FfiCall call);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_REFERENCE_COLLECTIVES_H_
