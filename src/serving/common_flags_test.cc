#include "serving/common_flags.h"

#include <cstdlib>

#include "base/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::serving {
namespace {

using ::testing::ElementsAre;

TEST(CommonFlagsTest, NoneThatIsKnownIsFatalOrUnknown) {
  FlagSet set;
  CommonFlags flags;
  AddCommonFlags(set, flags);
  const char* argv[] = {"server",
                        "--gcs_scratch_location=",
                        "--enable_metrics_collection=true",
                        "--noenforce_kernel_ipv6_support",
                        "--alsologtostderr",
                        "--v=1",
                        "--vmodule",
                        "a=1,b=2",
                        "--stderrthreshold=0",
                        "--temporary_flags_for_debugging=temporary_flag_for_debugging_worker=x;;;",
                        "--tpu_pinned_host_allocation_recycle=true",
                        "--tpu_premapped_buffer_size=34359738368",
                        "--xprof_max_trace_buffers",
                        "16384",
                        "--megascale_grpc_premap_memory_bytes=1",
                        "--cloud_pathways_sidecar_shm_directory=/tmp/shared-memory",
                        "--pathways_tmp_dir_pattern=gs://bucket"};
  ASSERT_TRUE(set.Parse(std::size(argv), argv).ok());
  EXPECT_THAT(set.unknown(), ElementsAre());
  EXPECT_EQ(flags.verbosity, 1);
  EXPECT_THAT(SplitTemporaryFlags(flags.temporary_flags), ElementsAre("temporary_flag_for_debugging_worker=x"));
}

TEST(CommonFlagsTest, VerbositySetsTheLevelUnlessTheEnvironmentDoes) {
  const auto before = spdlog::get_level();
  unsetenv("PATHWAYS_LOG_LEVEL");
  ApplyCommonFlags({.verbosity = 2, .temporary_flags = ""});
  EXPECT_EQ(spdlog::get_level(), spdlog::level::trace);
  spdlog::set_level(spdlog::level::warn);
  setenv("PATHWAYS_LOG_LEVEL", "warn", 1);
  ApplyCommonFlags({.verbosity = 2, .temporary_flags = ""});
  EXPECT_EQ(spdlog::get_level(), spdlog::level::warn);
  spdlog::set_level(before);
}

}  // namespace
}  // namespace openpathways::serving
