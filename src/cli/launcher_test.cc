#include "cli/launcher.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

ClusterState TwoSlices() {
  ClusterState state;
  state.name = "trial";
  state.shape = {{"tpuv5:2x2x2", "tpuv6e1t:2x4"}, 29000, "/opt/plugin.so", "/var/programs"};
  state.servers = PlanServers(state.shape);
  for (size_t i = 0; i < state.servers.size(); ++i) {
    if (state.servers[i].role != Role::kProxy) state.servers[i].port = static_cast<int>(5000 + i);
  }
  return state;
}

TEST(PlanServersTest, OneWorkerForEachHost) {
  std::vector<std::string> names;
  for (const ServerRecord& server : TwoSlices().servers) names.push_back(server.name());
  EXPECT_THAT(names, ElementsAre("resource_manager", "proxy", "worker-0-0", "worker-0-1", "worker-1-0"));
}

TEST(SpawnSpecTest, ServersAreStartedAsInPathwaysManifests) {
  const ClusterState state = TwoSlices();
  const StateDirectory directory("/state");
  const auto spec = [&](int i) { return SpawnSpecFor(state, state.servers[i], directory, "/bin"); };
  EXPECT_THAT(spec(0).argv,
              ElementsAre("/bin/pathways_resource_manager", "--server_port=5000", "--node_type=resource_manager",
                          "--instance_count=2", "--instance_type=tpuv5:2x2x2,tpuv6e1t:2x4"));
  EXPECT_THAT(spec(1).argv, ElementsAre("/bin/pathways_proxy_server", "--server_port=29000",
                                        "--resource_manager_address=127.0.0.1:5000", "--plugin=/opt/plugin.so",
                                        "--compilation_cache_dir=/var/programs"));
  EXPECT_THAT(spec(1).environment, Contains(Pair("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true")));
  EXPECT_THAT(spec(3).argv, ElementsAre("/bin/pathways_worker", "--server_port=5003",
                                        "--resource_manager_address=127.0.0.1:5000", "--plugin=/opt/plugin.so"));
  EXPECT_THAT(spec(3).environment, Contains(Pair("MEGASCALE_SLICE_ID", "0")));
  EXPECT_THAT(spec(3).environment, Contains(Pair("JOB_COMPLETION_INDEX", "1")));
  EXPECT_THAT(spec(4).environment, Contains(Pair("MEGASCALE_SLICE_ID", "1")));
  EXPECT_THAT(spec(3).environment, Contains(Pair(kClusterVariable, "/state/trial")));
  EXPECT_EQ(spec(3).log_path, "/state/trial/logs/worker-0-1.log");
}

TEST(ChoosePortsTest, PortsAreDifferentFreeAndNotTaken) {
  const absl::StatusOr<std::vector<int>> first = ChoosePorts(20, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::set<int> taken(first->begin(), first->end());
  EXPECT_EQ(taken.size(), 20u);
  const absl::StatusOr<std::vector<int>> second = ChoosePorts(20, taken);
  ASSERT_TRUE(second.ok()) << second.status();
  for (int port : *second) EXPECT_FALSE(taken.contains(port));
  EXPECT_EQ(ChoosePorts(100'000, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace openpathways::cli
