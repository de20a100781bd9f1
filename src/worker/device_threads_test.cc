// The threads and fibers that launches run on.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "base/fiber.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device_fibers.h"
#include "worker/device_queue.h"
#include "worker/executor.h"

namespace openpathways::worker {
namespace {

using ::testing::ElementsAre;

TEST(DeviceQueueTest, RunsTasksInOrder) {
  DeviceQueue queue("test");
  std::vector<int> order;
  absl::Notification done;
  for (int i = 0; i < 100; ++i) queue.Post([&order, i] { order.push_back(i); });
  queue.Post([&done] { done.Notify(); });
  done.WaitForNotification();
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(DeviceQueueTest, DoesNotWaitForATaskThatRuns) {
  absl::Notification begun, go_on, ended;
  std::atomic<bool> second_ran{false};
  {
    DeviceQueue queue("test");
    queue.Post([&] {
      begun.Notify();
      go_on.WaitForNotification();
      ended.Notify();
    });
    queue.Post([&] { second_ran = true; });
    begun.WaitForNotification();
  }
  go_on.Notify();
  ended.WaitForNotification();
  EXPECT_FALSE(second_ran);
}

TEST(SerialExecutorTest, CallersTaskRunsOnItsThreadIfNothingElseDoes) {
  SerialExecutor executor("test");
  std::thread::id ran_on;
  executor.RunOrPost([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(SerialExecutorTest, OrderHoldsBetweenBothKindsOfCalls) {
  SerialExecutor executor("test");
  std::vector<int> order;
  absl::Notification begun, go_on, done;
  executor.Post([&] {
    begun.Notify();
    go_on.WaitForNotification();
    order.push_back(0);
  });
  begun.WaitForNotification();
  executor.RunOrPost([&] { order.push_back(1); });
  executor.Post([&] { order.push_back(2); });
  executor.RunOrPost([&] {
    order.push_back(3);
    done.Notify();
  });
  go_on.Notify();
  done.WaitForNotification();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST(SerialExecutorTest, TaskPostedByACallersTaskRunsAfterIt) {
  SerialExecutor executor("test");
  std::vector<int> order;
  absl::Notification done;
  executor.RunOrPost([&] {
    executor.RunOrPost([&] {
      order.push_back(1);
      done.Notify();
    });
    order.push_back(0);
  });
  done.WaitForNotification();
  EXPECT_THAT(order, ElementsAre(0, 1));
}

TEST(SerialExecutorTest, ShutdownDropsWhatHasNotBegun) {
  SerialExecutor executor("test");
  executor.Shutdown();
  bool ran = false;
  executor.RunOrPost([&] { ran = true; });
  executor.Post([&] { ran = true; });
  EXPECT_FALSE(ran);
}

// The sanitizers do not know of stacks that change.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

TEST(DeviceFibersTest, DevicesMeetOnOneThread) {
  constexpr int kDevices = 4;
  constexpr int kMeetings = 50;
  DeviceFibers fibers("test", kDevices);
  // The last one that comes to a meeting lets the others go on.
  std::vector<Fiber*> waiting;
  std::vector<std::thread::id> threads;
  absl::BlockingCounter done(kDevices);
  for (int device = 0; device < kDevices; ++device) {
    fibers.Post(device, [&] {
      for (int i = 0; i < kMeetings; ++i) {
        threads.push_back(std::this_thread::get_id());
        if (waiting.size() < kDevices - 1) {
          waiting.push_back(Fiber::Current());
          Fiber::Current()->Suspend();
        } else {
          for (Fiber* fiber : std::exchange(waiting, {})) fiber->Resume();
        }
      }
      done.DecrementCount();
    });
  }
  done.Wait();
  ASSERT_EQ(threads.size(), kDevices * kMeetings);
  for (std::thread::id thread : threads) EXPECT_EQ(thread, threads[0]);
}

TEST(DeviceFibersTest, TasksOfADeviceRunInOrderAlsoIfOneWaits) {
  DeviceFibers fibers("test", 2);
  std::vector<std::string> order;
  Fiber* first = nullptr;
  absl::Notification other_ran, done;
  fibers.Post(0, [&] {
    first = Fiber::Current();
    first->Suspend();
    order.push_back("first");
  });
  fibers.Post(0, [&] {
    order.push_back("second");
    done.Notify();
  });
  fibers.Post(1, [&] {
    order.push_back("other");
    other_ran.Notify();
  });
  other_ran.WaitForNotification();
  first->Resume();
  done.WaitForNotification();
  EXPECT_THAT(order, ElementsAre("other", "first", "second"));
}

TEST(DeviceFibersTest, ResumeMayComeBeforeSuspend) {
  DeviceFibers fibers("test", 1);
  absl::Notification done;
  fibers.Post(0, [&] {
    std::thread([fiber = Fiber::Current()] { fiber->Resume(); }).join();
    Fiber::Current()->Suspend();
    done.Notify();
  });
  done.WaitForNotification();
}

TEST(DeviceFibersTest, DoesNotWaitForATaskThatWaits) {
  Fiber* waiting = nullptr;
  absl::Notification begun, ended;
  bool second_ran = false;
  {
    DeviceFibers fibers("test", 1);
    fibers.Post(0, [&] {
      waiting = Fiber::Current();
      begun.Notify();
      waiting->Suspend();
      ended.Notify();
    });
    fibers.Post(0, [&] { second_ran = true; });
    begun.WaitForNotification();
  }
  waiting->Resume();
  ended.WaitForNotification();
  EXPECT_FALSE(second_ran);
}

#endif

}  // namespace
}  // namespace openpathways::worker
