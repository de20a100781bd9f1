#include "collectives/instruction.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace openpathways::collectives {
namespace {

using Descriptor = hlo::CollectiveDescriptor;

constexpr int kRaggedOperands = 6;  // input, output, input offsets, send sizes, output offsets, receive sizes

const char* KindName(Descriptor::Kind kind) {
  switch (kind) {
    case Descriptor::ALL_REDUCE:
      return "all-reduce";
    case Descriptor::ALL_GATHER:
      return "all-gather";
    case Descriptor::REDUCE_SCATTER:
      return "reduce-scatter";
    case Descriptor::ALL_TO_ALL:
      return "all-to-all";
    case Descriptor::COLLECTIVE_PERMUTE:
      return "collective-permute";
    case Descriptor::COLLECTIVE_BROADCAST:
      return "collective-broadcast";
    case Descriptor::RAGGED_ALL_TO_ALL:
      return "ragged-all-to-all";
    default:
      return "collective of unknown kind";
  }
}

std::string ShapeText(const ArrayShape& shape) {
  return absl::StrCat(shape.type->name, "[", absl::StrJoin(shape.dims, ","), "]");
}

absl::StatusOr<ArrayShape> ReadShape(const Descriptor::Array& array) {
  ArrayShape shape;
  ASSIGN_OR_RETURN(shape.type, FindElementType(array.element_type()));
  shape.dims.assign(array.dims().begin(), array.dims().end());
  // Bits, too, must fit an int64.
  constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 128;
  shape.elements = 1;
  for (int64_t dim : shape.dims) {
    if (dim < 0) return absl::InvalidArgumentError(absl::StrCat("negative dimension in ", ShapeText(shape)));
    if (dim != 0 && shape.elements > kMaxElements / dim) {
      return absl::InvalidArgumentError(absl::StrCat(ShapeText(shape), " is too big"));
    }
    shape.elements *= dim;
  }
  shape.bytes = static_cast<size_t>((shape.elements * shape.type->bits + 7) / 8);
  return shape;
}

absl::Status ReadShapes(const google::protobuf::RepeatedPtrField<Descriptor::Array>& arrays,
                        std::vector<ArrayShape>& shapes) {
  for (const Descriptor::Array& array : arrays) {
    ASSIGN_OR_RETURN(ArrayShape shape, ReadShape(array));
    shapes.push_back(std::move(shape));
  }
  return absl::OkStatus();
}

absl::Status Mismatch(const ArrayShape& operand, const ArrayShape& result, int group_size) {
  return absl::InvalidArgumentError(absl::StrCat("operand ", ShapeText(operand), " and result ", ShapeText(result),
                                                 " do not fit together in a group of ", group_size));
}

absl::Status CheckSame(const ArrayShape& operand, const ArrayShape& result, int group_size) {
  if (operand.type != result.type || operand.dims != result.dims) return Mismatch(operand, result, group_size);
  return absl::OkStatus();
}

// `big` must be `small` with the dimension multiplied by the group's size.
absl::Status CheckScaled(const ArrayShape& small, const ArrayShape& big, int64_t dimension, int group_size) {
  if (small.type != big.type || small.dims.size() != big.dims.size()) return Mismatch(small, big, group_size);
  if (dimension < 0 || dimension >= static_cast<int64_t>(small.dims.size())) {
    return absl::InvalidArgumentError(absl::StrCat("dimension ", dimension, " of ", ShapeText(small)));
  }
  for (size_t d = 0; d < small.dims.size(); ++d) {
    const int64_t factor = static_cast<int64_t>(d) == dimension ? group_size : 1;
    if (big.dims[d] % factor != 0 || big.dims[d] / factor != small.dims[d]) return Mismatch(small, big, group_size);
  }
  return absl::OkStatus();
}

absl::Status CheckSplit(const ArrayShape& operand, const ArrayShape& result, int64_t dimension, int group_size) {
  RETURN_IF_ERROR(CheckSame(operand, result, group_size));
  if (dimension >= static_cast<int64_t>(operand.dims.size()) || operand.dims[dimension] % group_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dimension ", dimension, " of ", ShapeText(operand), " cannot be split in ", group_size));
  }
  return absl::OkStatus();
}

absl::Status CheckReduceScatter(const ArrayShape& operand, const ArrayShape& result, int64_t dimension,
                                int group_size) {
  RETURN_IF_ERROR(CheckScaled(result, operand, dimension, group_size));
  if (group_size > 1 && result.dims[dimension] * result.inner(dimension) * result.type->bits % 8 != 0) {
    return absl::UnimplementedError(absl::StrCat("pieces of ", ShapeText(operand), " cut along dimension ", dimension,
                                                 " do not begin on whole bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckRagged(const Instruction& instruction, int group_size) {
  if (instruction.operands.size() != kRaggedOperands || instruction.results.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("has ", instruction.operands.size(), " operands and ",
                                                   instruction.results.size(), " results instead of 6 and 1"));
  }
  const ArrayShape& input = instruction.operands[0];
  RETURN_IF_ERROR(CheckSame(instruction.operands[1], instruction.results[0], group_size));
  const ArrayShape& output = instruction.results[0];
  if (input.type != output.type || input.dims.empty() || input.dims.size() != output.dims.size() ||
      !std::equal(input.dims.begin() + 1, input.dims.end(), output.dims.begin() + 1)) {
    return Mismatch(input, output, group_size);
  }
  for (int i = 2; i < kRaggedOperands; ++i) {
    const ArrayShape& shape = instruction.operands[i];
    if ((shape.type->type != PrimitiveType::kS32 && shape.type->type != PrimitiveType::kS64) ||
        shape.elements % group_size != 0 || shape.elements != instruction.operands[2].elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("offsets or sizes ", ShapeText(shape), " in operand ", i, ", in a group of ", group_size));
    }
  }
  return absl::OkStatus();
}

// Checks that operands and results fit the kind, for groups of `group_size`.
absl::Status CheckShapes(const Instruction& instruction, int group_size) {
  if (instruction.kind == Descriptor::RAGGED_ALL_TO_ALL) return CheckRagged(instruction, group_size);
  const size_t count = instruction.operands.size();
  if (count == 0 || count != instruction.results.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", count, " operands and ", instruction.results.size(), " results"));
  }
  const bool tuple_form = instruction.kind == Descriptor::ALL_TO_ALL && instruction.dimension < 0;
  if (tuple_form && count != static_cast<size_t>(group_size)) {
    return absl::InvalidArgumentError(absl::StrCat("has ", count, " operands in a group of ", group_size));
  }
  const auto check = [&](const ArrayShape& operand, const ArrayShape& result) {
    switch (instruction.kind) {
      case Descriptor::ALL_GATHER:
        return CheckScaled(operand, result, instruction.dimension, group_size);
      case Descriptor::REDUCE_SCATTER:
        return CheckReduceScatter(operand, result, instruction.dimension, group_size);
      case Descriptor::ALL_TO_ALL:
        if (!tuple_form) return CheckSplit(operand, result, instruction.dimension, group_size);
        // Any operand may become any result.
        return CheckSame(instruction.operands[0], result, group_size);
      default:
        return CheckSame(operand, result, group_size);
    }
  };
  for (size_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(check(instruction.operands[i], instruction.results[i]));
    if (tuple_form) RETURN_IF_ERROR(CheckSame(instruction.operands[0], instruction.operands[i], group_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<Group> MakeGroup(uint32_t index, const std::vector<int64_t>& devices, const Placement& placement,
                                WorkerId self) {
  Group group;
  group.index = index;
  for (int64_t device : devices) {
    if (device < 0 || device >= static_cast<int64_t>(placement.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("names device ", device, " of a program of ", placement.size(), " devices"));
    }
    const WorkerId worker = placement[device];
    // Groups lie on few workers, mostly in order: from the back is fast.
    int position = group.num_workers() - 1;
    while (position >= 0 && group.workers[position] != worker) --position;
    if (position < 0) {
      position = group.num_workers();
      group.workers.push_back(worker);
      group.members_of.emplace_back();
      if (worker == self) group.self = position;
    }
    std::vector<int>& siblings = group.members_of[position];
    group.members.push_back({device, position, static_cast<int>(siblings.size())});
    siblings.push_back(group.size() - 1);
  }
  return group;
}

absl::Status ReadGroups(const Descriptor& descriptor, const Placement& placement, WorkerId self,
                        Instruction& instruction) {
  std::vector<std::vector<int64_t>> lists;
  if (descriptor.kind() != Descriptor::COLLECTIVE_PERMUTE) {
    for (const Descriptor::Group& group : descriptor.groups()) {
      lists.emplace_back(group.devices().begin(), group.devices().end());
    }
  }
  if (lists.empty()) {
    lists.emplace_back();
    for (size_t device = 0; device < placement.size(); ++device) lists[0].push_back(static_cast<int64_t>(device));
  }
  for (const std::vector<int64_t>& devices : lists) {
    const uint32_t index = static_cast<uint32_t>(instruction.groups.size());
    if (devices.empty()) return absl::InvalidArgumentError(absl::StrCat("group ", index, " is empty"));
    ASSIGN_OR_RETURN(Group group, MakeGroup(index, devices, placement, self));
    for (int member = 0; member < group.size(); ++member) {
      const int64_t device = group.members[member].device;
      if (!instruction.places.insert({device, {static_cast<int>(index), member}}).second) {
        return absl::InvalidArgumentError(absl::StrCat("device ", device, " is in its groups twice"));
      }
    }
    instruction.groups.push_back(std::move(group));
  }
  return absl::OkStatus();
}

absl::Status ReadPairs(const Descriptor& descriptor, Instruction& instruction) {
  absl::flat_hash_set<int64_t> sources, targets;
  for (const Descriptor::Pair& pair : descriptor.pairs()) {
    const auto source = instruction.places.find(pair.source());
    const auto target = instruction.places.find(pair.target());
    if (source == instruction.places.end() || target == instruction.places.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pair {", pair.source(), ",", pair.target(), "} names a device that the program does not have"));
    }
    if (!sources.insert(pair.source()).second || !targets.insert(pair.target()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("pair {", pair.source(), ",", pair.target(), "}: a device is source or target of two pairs"));
    }
    instruction.pairs.push_back({source->second.member, target->second.member});
  }
  return absl::OkStatus();
}

absl::Status Read(const Descriptor& descriptor, const Placement& placement, WorkerId self, Instruction& instruction) {
  if (!Descriptor::Kind_IsValid(descriptor.kind()) || descriptor.kind() == Descriptor::KIND_UNSPECIFIED) {
    return absl::UnimplementedError(absl::StrCat("kind ", static_cast<int>(descriptor.kind()), " is not supported"));
  }
  RETURN_IF_ERROR(ReadShapes(descriptor.operands(), instruction.operands));
  RETURN_IF_ERROR(ReadShapes(descriptor.results(), instruction.results));
  RETURN_IF_ERROR(ReadGroups(descriptor, placement, self, instruction));
  for (const Group& group : instruction.groups) RETURN_IF_ERROR(CheckShapes(instruction, group.size()));
  if (descriptor.kind() == Descriptor::COLLECTIVE_PERMUTE) return ReadPairs(descriptor, instruction);
  if (descriptor.kind() == Descriptor::ALL_REDUCE || descriptor.kind() == Descriptor::REDUCE_SCATTER) {
    for (const ArrayShape& operand : instruction.operands) {
      ASSIGN_OR_RETURN(Fold fold, FindFold(*operand.type, descriptor.reduction()));
      instruction.folds.push_back(fold);
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ArrayShape::outer(int64_t dimension) const {
  int64_t product = 1;
  for (int64_t d = 0; d < dimension; ++d) product *= dims[d];
  return product;
}

int64_t ArrayShape::inner(int64_t dimension) const {
  int64_t product = 1;
  for (size_t d = dimension + 1; d < dims.size(); ++d) product *= dims[d];
  return product;
}

std::string Instruction::name() const { return absl::StrCat(KindName(kind), " ", number); }

absl::StatusOr<std::shared_ptr<const Instruction>> Instruction::Create(const Descriptor& descriptor,
                                                                       const Placement& placement, WorkerId self) {
  auto instruction = std::make_shared<Instruction>();
  instruction->number = descriptor.instruction();
  instruction->kind = descriptor.kind();
  instruction->dimension = descriptor.dimension();
  if (absl::Status status = Read(descriptor, placement, self, *instruction); !status.ok()) {
    return AnnotateStatus(status, instruction->name());
  }
  return instruction;
}

}  // namespace openpathways::collectives
