#include "base/machine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace openpathways {
namespace {

namespace fs = std::filesystem;
using machine_internal::AvailableCpus;
using machine_internal::MemoryLimit;

// A machine's files, below a folder.
class MachineTest : public ::testing::Test {
 protected:
  MachineTest() { fs::remove_all(root_); }
  ~MachineTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  const std::string root_ = ::testing::TempDir() + "/machine_test." + std::to_string(getpid());
};

TEST_F(MachineTest, WithoutLimitsAllOfIt) {
  EXPECT_EQ(AvailableCpus(root_, 8), 8);
  EXPECT_EQ(AvailableCpus(root_, 0), 1);
  EXPECT_EQ(MemoryLimit(root_, 1000), 1000u);
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/cpu.max", "max 100000");
  Write("/sys/fs/cgroup/memory.max", "max");
  EXPECT_EQ(AvailableCpus(root_, 8), 8);
  EXPECT_EQ(MemoryLimit(root_, 1000), 1000u);
}

TEST_F(MachineTest, TheSmallestLimitAroundCounts) {
  Write("/proc/self/cgroup", "0::/pods/one/main");
  Write("/sys/fs/cgroup/pods/cpu.max", "150000 100000");
  Write("/sys/fs/cgroup/pods/one/main/cpu.max", "400000 100000");
  Write("/sys/fs/cgroup/pods/one/memory.max", "500");
  Write("/sys/fs/cgroup/pods/one/main/memory.max", "max");
  EXPECT_EQ(AvailableCpus(root_, 8), 2);  // 1.5
  EXPECT_EQ(MemoryLimit(root_, 1000), 500u);
}

TEST_F(MachineTest, TheOlderControlGroups) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/kubepods/pod1\n4:memory:/kubepods/pod1\n1:name=systemd:/");
  // The container sees its own group at the top.
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300");
  EXPECT_EQ(AvailableCpus(root_, 8), 1);
  EXPECT_EQ(MemoryLimit(root_, 1000), 300u);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(AvailableCpus(root_, 8), 8);
  EXPECT_EQ(MemoryLimit(root_, 1000), 1000u);
}

}  // namespace
}  // namespace openpathways
