#include "server/role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace openpathways::server {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> Binary(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "pathways_server");
  return BinaryForArguments(static_cast<int>(arguments.size()), arguments.data());
}

TEST(RoleTest, ResourceManagerInEverySpelling) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"--server_port=29001", "--node_type=resource_manager", "--instance_count=2"},
        {"--node_type", "resource_manager"},
        {"-node_type=resource_manager"},
        {"--node_type='resource_manager'"},
        {"--node_type=\"resource_manager\""},
        {"--node_type=worker", "--node_type=resource_manager"}}) {
    absl::StatusOr<std::string> binary = Binary(arguments);
    ASSERT_TRUE(binary.ok()) << binary.status();
    EXPECT_EQ(*binary, "pathways_resource_manager") << arguments[0];
  }
}

TEST(RoleTest, WorkerByDefault) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{},
                                                    {"--server_port=29005", "--resource_manager_address=head:29001"},
                                                    {"--node_type=worker"},
                                                    {"--node_type="},
                                                    {"--node_type"},
                                                    {"--node_types=resource_manager"},
                                                    {"--my_node_type=resource_manager"}}) {
    absl::StatusOr<std::string> binary = Binary(arguments);
    ASSERT_TRUE(binary.ok()) << binary.status();
    EXPECT_EQ(*binary, "pathways_worker");
  }
}

TEST(RoleTest, AnotherTypeIsNamed) {
  absl::StatusOr<std::string> binary = Binary({"--node_type=proxy"});
  EXPECT_EQ(binary.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(binary.status().message(), HasSubstr("--node_type=proxy"));
}

}  // namespace
}  // namespace openpathways::server
