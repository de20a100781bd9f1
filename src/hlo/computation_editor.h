// Rebuilds the instruction list of a computation with instructions added and replaced. Private to this folder.
#ifndef OPENPATHWAYS_HLO_COMPUTATION_EDITOR_H_
#define OPENPATHWAYS_HLO_COMPUTATION_EDITOR_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hlo/hlo.pb.h"

namespace openpathways::hlo {

// Not thread-safe. The computation changes when ForEach has gone through.
class ComputationEditor {
 public:
  explicit ComputationEditor(HloComputationProto& computation);

  // An id that no instruction of the computation has.
  int64_t NewId() { return next_id_++; }

  // Puts an instruction without operands before all others and gives it an id and a name of its own; returns the id.
  int64_t AddFirst(HloInstructionProto instruction);

  // Hands over the old instructions one by one, in order; what `visit` appends are the new ones.
  absl::Status ForEach(absl::FunctionRef<absl::Status(HloInstructionProto)> visit);

  // For use inside ForEach:
  void Append(HloInstructionProto instruction);
  absl::StatusOr<ShapeProto> ShapeOf(int64_t id) const;
  // Appends what turns value `id` of shape `from` into element type and layout of `to`; returns the id of the result,
  // which is `id` itself if nothing is to be done.
  int64_t ConvertTo(int64_t id, const ShapeProto& from, const ShapeProto& to);
  // Appends what turns `value` into element types and layouts of `shape` (an array or a tuple of arrays), under `id`.
  void AppendConverted(const HloInstructionProto& value, int64_t id, const ShapeProto& shape);

 private:
  HloInstructionProto MakeUnary(const std::string& opcode, int64_t id, int64_t operand, const ShapeProto& shape) const;
  // One array of AppendConverted. At least one instruction.
  void AppendConvertedArray(int64_t operand, const ShapeProto& from, int64_t id, const ShapeProto& shape);

  HloComputationProto& computation_;
  int64_t next_id_;
  google::protobuf::RepeatedPtrField<HloInstructionProto> instructions_;
  absl::flat_hash_map<int64_t, ShapeProto> shapes_;
};

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_COMPUTATION_EDITOR_H_
