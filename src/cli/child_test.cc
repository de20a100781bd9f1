#include "cli/child.h"

#include <signal.h>

#include "absl/time/clock.h"
#include "cli/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::cli {
namespace {

const auto kNever = [] { return false; };

TEST(RunChildTest, InputOutputAndExitCode) {
  const ChildResult result = *RunChild({"sh", "-c", "cat; echo oops >&2; exit 3"}, "hello", kNever);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "hello");
  EXPECT_EQ(result.err, "oops\n");
  EXPECT_EQ(RunChild({"sh", "-c", "kill -9 $$"}, "", kNever)->exit_code, 128 + SIGKILL);
}

TEST(RunChildTest, MoreThanAPipeHoldsInBothDirections) {
  const std::string input(3'000'000, 'x');
  EXPECT_EQ(RunChild({"cat"}, input, kNever)->out, input);
}

TEST(RunChildTest, AProgramThatDoesNotReadItsInput) {
  EXPECT_EQ(RunChild({"true"}, std::string(3'000'000, 'x'), kNever)->exit_code, 0);
}

TEST(RunChildTest, AProgramThatIsNotThereOrNoProgram) {
  EXPECT_TRUE(absl::IsNotFound(RunChild({"no-such-program"}, "", kNever).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(RunChild({"/etc/passwd"}, "", kNever).status()));
}

TEST(RunChildTest, CancellingEndsIt) {
  const absl::Time start = absl::Now();
  const auto soon = [&] { return absl::Now() > start + absl::Milliseconds(50); };
  EXPECT_TRUE(absl::IsCancelled(RunChild({"sleep", "1000"}, "", soon).status()));
}

TEST(BackgroundChildTest, LinesAndEnd) {
  BackgroundChild child = *BackgroundChild::Start({"sh", "-c", "echo one; echo two >&2; printf three; exit 5"});
  std::vector<std::string> lines;
  LineReader reader;
  while (reader.Read(child.output_fd(), [&](const std::string& line) { lines.push_back(line); })) {
  }
  EXPECT_THAT(lines, ::testing::ElementsAre("one", "two"));  // the third has not ended
  EXPECT_EQ(child.Wait(), 5);
}

TEST(BackgroundChildTest, TheDestructorEndsItEvenIfItIsDeaf) {
  const std::string mark = absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone());
  {
    setenv("BACKGROUND_CHILD_TEST", mark.c_str(), 1);
    BackgroundChild child =
        *BackgroundChild::Start({"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"});
    unsetenv("BACKGROUND_CHILD_TEST");
    bool ready = false;
    for (LineReader reader; !ready;)
      ASSERT_TRUE(reader.Read(child.output_fd(), [&](const std::string&) { ready = true; }));
    EXPECT_FALSE(FindByEnvironment("BACKGROUND_CHILD_TEST", mark).empty());
  }
  // Its own child, if it has one just now, ends by itself.
  for (int i = 0; i < 200 && !FindByEnvironment("BACKGROUND_CHILD_TEST", mark).empty(); ++i)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(FindByEnvironment("BACKGROUND_CHILD_TEST", mark).empty());
}

}  // namespace
}  // namespace openpathways::cli
