#include "cli/cluster_state.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClusterStateTest : public ::testing::Test {
 protected:
  ClusterStateTest() : root_(::testing::TempDir() + absl::StrCat("cluster_state_test.", getpid())), directory_(root_) {
    state_.name = "trial";
    state_.shape = {{"tpuv5:2x2x2", "tpuv6e:2x4"}, 29123, "/opt/plugin.so", "/var/programs"};
    state_.ready = true;
    state_.boot_id = BootId();
    state_.start_time_ms = 1234567890123;
    state_.servers.resize(3);
    state_.servers[0].role = Role::kResourceManager;
    state_.servers[0].process = *FindProcess(getpid());
    state_.servers[1].role = Role::kProxy;
    state_.servers[1].port = 29123;
    state_.servers[2].slice = 1;
    state_.servers[2].host = 7;
  }
  ~ClusterStateTest() override { std::filesystem::remove_all(root_); }

  const std::string root_;
  StateDirectory directory_;
  ClusterState state_;
};

TEST_F(ClusterStateTest, SavedStateComesBack) {
  ASSERT_TRUE(directory_.Save(state_).ok());
  const absl::StatusOr<std::optional<ClusterState>> loaded = directory_.Load("trial");
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->shape, state_.shape);
  EXPECT_TRUE((*loaded)->ready);
  EXPECT_EQ((*loaded)->start_time_ms, state_.start_time_ms);
  ASSERT_EQ((*loaded)->servers.size(), 3u);
  EXPECT_EQ((*loaded)->servers[0].process, state_.servers[0].process);
  EXPECT_EQ((*loaded)->servers[2].name(), "worker-1-7");
  EXPECT_EQ((*loaded)->Find(Role::kProxy)->port, 29123);
  EXPECT_THAT(directory_.List(), ElementsAre("trial"));
  ASSERT_TRUE(directory_.Remove("trial").ok());
  EXPECT_FALSE(directory_.Load("trial")->has_value());
  EXPECT_TRUE(directory_.Remove("trial").ok());
  EXPECT_THAT(directory_.List(), IsEmpty());
}

TEST_F(ClusterStateTest, DamagedStateIsAnErrorAndNotACrash) {
  ASSERT_TRUE(directory_.Save(state_).ok());
  const std::string path = directory_.cluster_directory("trial") + "/state.json";
  for (const char* text :
       {"", "{", "[]", "null", "{\"format\": 2}", "{\"format\": 1}", "{\"format\": 1, \"name\": 3}", "\xff\xfe"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(directory_.Load("trial").status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST_F(ClusterStateTest, NoProcessOfAnotherBootIsAlive) {
  EXPECT_EQ(state_.CountAlive(), 1);
  state_.boot_id = "an earlier boot";
  EXPECT_EQ(state_.CountAlive(), 0);
}

TEST_F(ClusterStateTest, NamesMustBeFitForAFolder) {
  for (const char* name : {"default", "a", "trial-2.b_C", "0"})
    EXPECT_TRUE(StateDirectory::CheckName(name).ok()) << name;
  for (const char* name : {"", ".", "..", ".ports", "-x", "a/b", "a b", "ä", "../x"}) {
    EXPECT_FALSE(StateDirectory::CheckName(name).ok()) << name;
  }
  EXPECT_FALSE(StateDirectory::CheckName(std::string(64, 'a')).ok());
}

TEST_F(ClusterStateTest, DifferencesAreNamed) {
  ClusterShape wanted = state_.shape;
  EXPECT_THAT(DescribeDifferences(state_.shape, wanted), IsEmpty());
  wanted.instance_types = {"tpuv5:2x2x2"};
  wanted.proxy_port = 1;
  EXPECT_THAT(DescribeDifferences(state_.shape, wanted),
              ElementsAre(HasSubstr("has tpuv5:2x2x2,tpuv6e:2x4, you asked for tpuv5:2x2x2"), HasSubstr("29123")));
}

TEST_F(ClusterStateTest, TheStateHomeFollowsXdg) {
  setenv("XDG_STATE_HOME", "/somewhere", 1);
  EXPECT_EQ(StateDirectory::FromEnvironment()->cluster_directory("x"), "/somewhere/openpathways/x");
  setenv("HOME", "/home/someone", 1);
  setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(StateDirectory::FromEnvironment()->cluster_directory("x"), "/home/someone/.local/state/openpathways/x");
}

TEST_F(ClusterStateTest, OneHolderOfALockAtATime) {
  const std::string path = root_ + "/lock";
  static absl::Notification* waiting = nullptr;
  absl::Notification began_to_wait;
  waiting = &began_to_wait;
  std::optional<ClusterLock> first = *ClusterLock::Acquire(path, [] { FAIL() << "nobody else has it"; });
  std::thread second([&] { EXPECT_TRUE(ClusterLock::Acquire(path, [] { waiting->Notify(); }).ok()); });
  began_to_wait.WaitForNotification();
  first.reset();
  second.join();
}

}  // namespace
}  // namespace openpathways::cli
