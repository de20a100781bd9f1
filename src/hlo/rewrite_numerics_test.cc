// The rewriting of single instructions. That the results compute what they should is shown by numerics/handlers_test.
#include "hlo/rewrite_numerics.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/numeric_call.h"
#include "hlo/program.h"
#include "hlo/shape.h"

namespace openpathways::hlo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBf16 = 16;
constexpr int kS2 = 26;

ShapeProto RowMajorShape(int type, const std::vector<int64_t>& dims) {
  ShapeProto shape = ScalarShape(type);
  for (size_t i = 0; i < dims.size(); ++i) {
    shape.add_dimensions(dims[i]);
    shape.mutable_layout()->add_minor_to_major(static_cast<int64_t>(dims.size() - 1 - i));
  }
  return shape;
}

// A program of one instruction, of operands that are its parameters.
HloModuleProto MakeModule(const std::vector<ShapeProto>& operands, HloInstructionProto instruction) {
  HloModuleProto module;
  HloComputationProto& entry = *module.add_computations();
  entry.set_id(1);
  for (size_t i = 0; i < operands.size(); ++i) {
    HloInstructionProto& parameter = *entry.add_instructions();
    parameter.set_id((int64_t{1} << 32) + static_cast<int64_t>(i));
    parameter.set_opcode("parameter");
    *parameter.mutable_shape() = operands[i];
    instruction.add_operand_ids(parameter.id());
  }
  instruction.set_id((int64_t{1} << 32) + 99);
  instruction.set_name("it");
  entry.set_root_id(instruction.id());
  *entry.add_instructions() = std::move(instruction);
  return module;
}

HloInstructionProto Call(const std::string& target, const ShapeProto& shape) {
  HloInstructionProto call;
  call.set_opcode("custom-call");
  call.set_custom_call_target(target);
  *call.mutable_shape() = shape;
  return call;
}

HloModuleProto LuModule() {
  ShapeProto result;
  result.set_element_type(kTuple);
  *result.add_tuple_shapes() = RowMajorShape(kBf16, {2, 4, 3});
  *result.add_tuple_shapes() = RowMajorShape(kS32, {2, 3});
  *result.add_tuple_shapes() = RowMajorShape(kS32, {2, 4});
  return MakeModule({RowMajorShape(kBf16, {2, 4, 3})}, Call("LuDecomposition", result));
}

// [12, 4] x [3, 4, 5]
HloInstructionProto RaggedDotInstruction() {
  HloInstructionProto dot;
  dot.set_opcode("ragged-dot");
  *dot.mutable_shape() = RowMajorShape(kF32, {12, 5});
  RaggedDotDimensionNumbers& numbers = *dot.mutable_ragged_dot_dimension_numbers();
  numbers.mutable_dot_dimension_numbers()->add_lhs_contracting_dimensions(1);
  numbers.mutable_dot_dimension_numbers()->add_rhs_contracting_dimensions(1);
  numbers.add_lhs_ragged_dimensions(0);
  numbers.add_rhs_group_dimensions(0);
  return dot;
}

const std::vector<ShapeProto>& RaggedDotOperands() {
  static const auto* const operands = new std::vector<ShapeProto>{
      RowMajorShape(kF32, {12, 4}), RowMajorShape(kF32, {3, 4, 5}), RowMajorShape(kS32, {3})};
  return *operands;
}

const HloInstructionProto& Find(const HloModuleProto& module, const std::string& target) {
  for (const HloInstructionProto& instruction : module.computations(0).instructions()) {
    if (instruction.custom_call_target() == target) return instruction;
  }
  ADD_FAILURE() << "no call of " << target;
  return HloInstructionProto::default_instance();
}

std::vector<std::string> Opcodes(const HloModuleProto& module) {
  std::vector<std::string> opcodes;
  for (const HloInstructionProto& instruction : module.computations(0).instructions()) {
    opcodes.push_back(instruction.opcode());
  }
  return opcodes;
}

std::string ErrorOf(HloModuleProto module, absl::StatusCode code) {
  const absl::StatusOr<bool> changed = RewriteNumerics(module);
  EXPECT_EQ(changed.status().code(), code) << changed.status();
  return std::string(changed.status().message());
}

TEST(RewriteNumericsTest, LuIsGivenColumnMajorMatricesOfATypeThatLapackKnows) {
  HloModuleProto module = LuModule();
  ASSERT_TRUE(*RewriteNumerics(module));
  const HloInstructionProto& call = Find(module, kLuTarget);
  ASSERT_EQ(call.operand_shapes_with_layout_size(), 1);
  for (const ShapeProto& shape : {call.operand_shapes_with_layout(0), call.shape().tuple_shapes(0)}) {
    EXPECT_EQ(shape.element_type(), kF32);
    EXPECT_THAT(shape.layout().minor_to_major(), ElementsAre(1, 2, 0));
  }
  // What the users of the instruction see is what they saw before.
  const HloInstructionProto& root = module.computations(0).instructions().rbegin()[0];
  EXPECT_EQ(root.id(), module.computations(0).root_id());
  EXPECT_EQ(root.opcode(), "tuple");
  EXPECT_EQ(root.shape().SerializeAsString(),
            LuModule().computations(0).instructions().rbegin()[0].shape().SerializeAsString());
}

TEST(RewriteNumericsTest, RaggedDotSaysItsSizes) {
  HloModuleProto module = MakeModule(RaggedDotOperands(), RaggedDotInstruction());
  ASSERT_TRUE(*RewriteNumerics(module));
  const HloInstructionProto& call = Find(module, kRaggedDotTarget);
  EXPECT_EQ(
      call.backend_config(),
      "{mode = 0 : i64, batch = 1 : i64, prefix = 1 : i64, ragged = 12 : i64, suffix = 1 : i64, groups = 3 : i64, "
      "left = 4 : i64, right = 5 : i64, own_sizes = 0 : i64}");
  EXPECT_EQ(call.operand_shapes_with_layout(2).element_type(), kS64);
  EXPECT_FALSE(call.has_ragged_dot_dimension_numbers());
}

TEST(RewriteNumericsTest, RaggedDotThatMakesNoSenseIsAnError) {
  const std::vector<std::function<void(RaggedDotDimensionNumbers&)>> mistakes = {
      [](auto& numbers) { numbers.clear_lhs_ragged_dimensions(); },
      [](auto& numbers) { numbers.set_lhs_ragged_dimensions(0, 7); },
      [](auto& numbers) { numbers.set_lhs_ragged_dimensions(0, -1); },
      [](auto& numbers) { numbers.clear_rhs_group_dimensions(); },
      [](auto& numbers) { numbers.add_rhs_group_dimensions(1); },
      [](auto& numbers) { numbers.set_rhs_group_dimensions(0, 1); },  // contracted, too
      [](auto& numbers) { numbers.mutable_dot_dimension_numbers()->add_lhs_contracting_dimensions(0); },
      [](auto& numbers) { numbers.mutable_dot_dimension_numbers()->set_rhs_contracting_dimensions(0, 3); },
      [](auto& numbers) { numbers.mutable_dot_dimension_numbers()->add_lhs_batch_dimensions(0); },
  };
  for (const auto& mistake : mistakes) {
    HloInstructionProto dot = RaggedDotInstruction();
    mistake(*dot.mutable_ragged_dot_dimension_numbers());
    EXPECT_THAT(ErrorOf(MakeModule(RaggedDotOperands(), dot), absl::StatusCode::kInvalidArgument),
                HasSubstr("ragged-dot it"));
  }
  EXPECT_THAT(ErrorOf(MakeModule({}, RaggedDotInstruction()), absl::StatusCode::kInvalidArgument),
              HasSubstr("three operands"));
}

TEST(RewriteNumericsTest, UninitializedMemoryIsZeros) {
  HloModuleProto module = MakeModule({}, Call("AllocateBuffer", RowMajorShape(kBf16, {3, 4})));
  ASSERT_TRUE(*RewriteNumerics(module));
  EXPECT_THAT(Opcodes(module), ElementsAre("constant", "convert", "broadcast"));
}

TEST(RewriteNumericsTest, PartialReductionIsASortAndACut) {
  ShapeProto result;
  result.set_element_type(kTuple);
  *result.add_tuple_shapes() = RowMajorShape(kF32, {2, 128});
  *result.add_tuple_shapes() = RowMajorShape(kS32, {2, 128});
  HloInstructionProto call = Call("PartialReduce", result);
  call.add_called_computation_ids(7);
  const std::vector<ShapeProto> operands = {RowMajorShape(kF32, {2, 4096}), RowMajorShape(kS32, {2, 4096}),
                                            ScalarShape(kF32), ScalarShape(kS32)};
  HloModuleProto module = MakeModule(operands, call);
  ASSERT_TRUE(*RewriteNumerics(module));
  const auto& instructions = module.computations(0).instructions();
  ASSERT_EQ(instructions[4].opcode(), "sort");
  EXPECT_THAT(instructions[4].dimensions(), ElementsAre(1));
  EXPECT_THAT(instructions[4].called_computation_ids(), ElementsAre(7));
  EXPECT_EQ(instructions[6].opcode(), "slice");
  EXPECT_EQ(instructions[6].slice_dimensions(1).limit(), 128);
  EXPECT_EQ(instructions.rbegin()->id(), module.computations(0).root_id());

  EXPECT_THAT(ErrorOf(MakeModule({operands[0], operands[0], operands[2], operands[3]},
                                 Call("PartialReduce", RowMajorShape(kF32, {2}))),
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("it has not an operand"));
  *call.mutable_shape()->mutable_tuple_shapes(1) = RowMajorShape(kS32, {1, 4096});
  EXPECT_THAT(ErrorOf(MakeModule(operands, call), absl::StatusCode::kInvalidArgument), HasSubstr("one dimension"));
}

TEST(RewriteNumericsTest, SubByteArraysAreConcatenatedAsBytes) {
  HloInstructionProto concatenate;
  concatenate.set_opcode("concatenate");
  concatenate.add_dimensions(0);
  *concatenate.mutable_shape() = RowMajorShape(kS2, {4});
  HloModuleProto module = MakeModule({RowMajorShape(kS2, {2}), RowMajorShape(kS2, {2})}, concatenate);
  HloModuleProto fused = module;
  ASSERT_TRUE(*RewriteNumerics(module));
  EXPECT_THAT(Opcodes(module), ElementsAre("parameter", "parameter", "convert", "convert", "concatenate", "convert"));
  fused.mutable_computations(0)->set_is_fusion_computation(true);
  EXPECT_FALSE(*RewriteNumerics(fused));
}

TEST(RewriteNumericsTest, KernelForTpusIsRefusedByName) {
  HloInstructionProto kernel = Call("tpu_custom_call", RowMajorShape(kF32, {8}));
  kernel.mutable_metadata()->set_op_name("jit(f)/my_kernel/pallas_call");
  EXPECT_THAT(ErrorOf(MakeModule({}, kernel), absl::StatusCode::kUnimplemented),
              HasSubstr("kernel my_kernel (jit(f)/my_kernel/pallas_call)"));
  kernel.clear_metadata();
  EXPECT_THAT(ErrorOf(MakeModule({}, kernel), absl::StatusCode::kUnimplemented), HasSubstr("kernel it (it)"));
}

TEST(RewriteNumericsTest, OtherProgramsStay) {
  HloModuleProto module = MakeModule({}, Call("TopK", RowMajorShape(kF32, {8})));
  const std::string before = module.SerializeAsString();
  EXPECT_FALSE(*RewriteNumerics(module));
  EXPECT_EQ(module.SerializeAsString(), before);
}

}  // namespace
}  // namespace openpathways::hlo
