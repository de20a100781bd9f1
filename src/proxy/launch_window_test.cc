#include "proxy/launch_window.h"

#include "gtest/gtest.h"

namespace openpathways::proxy {
namespace {

constexpr int64_t kWeight = 18;

TEST(LaunchWindowTest, ClosesAtItsLimitAndOpensWhenLaunchesEnd) {
  LaunchWindow window;
  bool open = false;
  auto is_open = [&] {
    open = false;
    window.WhenOpen([&] { open = true; });
    return open;
  };
  int64_t last_report = 0;
  int launches = 0;
  while (is_open()) {
    ++launches;
    if (int64_t number = window.Begin(0, kWeight); number != 0) last_report = number;
    ASSERT_LT(launches, 100'000);
  }
  EXPECT_EQ(launches, LaunchWindow::kMaxWeight / kWeight + 1);
  ASSERT_NE(last_report, 0);  // somebody will open it again
  EXPECT_FALSE(open);
  window.Ended(0, last_report);
  EXPECT_TRUE(open);
  EXPECT_TRUE(is_open());
}

TEST(LaunchWindowTest, AHugeLaunchReportsItsEnd) {
  LaunchWindow window;
  const int64_t number = window.Begin(3, 2 * LaunchWindow::kMaxWeight);
  ASSERT_NE(number, 0);
  bool open = false;
  window.WhenOpen([&] { open = true; });
  EXPECT_FALSE(open);
  window.Ended(3, number);
  EXPECT_TRUE(open);
}

TEST(LaunchWindowTest, AnotherDevicesLaunchesDoNotOpenIt) {
  LaunchWindow window;
  const int64_t full = window.Begin(0, 2 * LaunchWindow::kMaxWeight);
  const int64_t other = window.Begin(1, LaunchWindow::kMaxWeight / 2);
  bool open = false;
  window.WhenOpen([&] { open = true; });
  window.Ended(1, other);
  EXPECT_FALSE(open);
  window.Ended(0, full);
  EXPECT_TRUE(open);
}

}  // namespace
}  // namespace openpathways::proxy
