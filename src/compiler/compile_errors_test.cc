#include "compiler/compile_errors.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pjrt/compile_options.pb.h"

namespace openpathways::compiler {
namespace {

using ::testing::HasSubstr;

TEST(CompileErrorsTest, WhatNobodyImplementsIsExplained) {
  const absl::Status status = ExplainCompileError(
      absl::NotFoundError("No registered implementation for untyped custom call to their_target for Host"));
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("their_target"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("emulated"));
}

TEST(CompileErrorsTest, TheMoreSpecialExplanationWins) {
  const absl::Status status = ExplainCompileError(
      absl::NotFoundError("No registered implementation for untyped custom call to CustomSPMDPartitioning for Host"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard_map"));
}

TEST(CompileErrorsTest, OtherErrorsStay) {
  const absl::Status status = absl::NotFoundError("no such thing");
  EXPECT_EQ(ExplainCompileError(status), status);
}

TEST(CompileErrorsTest, RaggedDotNeedsShardyIfThereAreSeveralDevices) {
  const auto check = [](const std::string& program, int partitions, bool shardy) {
    pjrt::CompileOptionsProto options;
    options.mutable_executable_build_options()->set_num_partitions(partitions);
    options.mutable_executable_build_options()->set_use_shardy_partitioner(shardy);
    return CheckCompilable(program, options.SerializeAsString());
  };
  const std::string program = "ML\xefR … chlo.ragged_dot …";
  EXPECT_TRUE(check(program, 4, true).ok());
  EXPECT_TRUE(check(program, 1, false).ok());
  EXPECT_TRUE(check("dot", 4, false).ok());
  EXPECT_TRUE(absl::IsUnimplemented(check(program, 4, false)));
}

}  // namespace
}  // namespace openpathways::compiler
