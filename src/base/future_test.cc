#include "base/future.h"

#include <gtest/gtest.h>

#include <thread>

namespace openpathways {
namespace {

TEST(FutureTest, CallbackBeforeAndAfterTheValue) {
  Promise<int> promise;
  int early = 0, late = 0;
  promise.future().OnReady([&](const absl::StatusOr<int>& value) { early = *value; });
  EXPECT_FALSE(promise.future().IsReady());
  promise.Set(7);
  promise.future().OnReady([&](const absl::StatusOr<int>& value) { late = *value; });
  EXPECT_EQ(early, 7);
  EXPECT_EQ(late, 7);
}

TEST(FutureTest, AbandonedPromiseResolvesToAborted) {
  Future<> future = Promise<>().future();
  EXPECT_EQ(future.Await().code(), absl::StatusCode::kAborted);
}

TEST(FutureTest, MoveAssignmentAbandonsTheOldPromise) {
  Promise<> promise;
  Future<> old = promise.future();
  promise = Promise<>();
  EXPECT_EQ(old.Await().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(promise.future().IsReady());
}

TEST(FutureTest, OnlyTheFirstSetCounts) {
  Promise<int> promise;
  promise.Set(1);
  promise.Set(2);
  EXPECT_EQ(*promise.future().Await(), 1);
}

TEST(FutureTest, AwaitFromAnotherThread) {
  Promise<int> promise;
  std::thread setter([&] { promise.Set(3); });
  EXPECT_EQ(*promise.future().Await(), 3);
  setter.join();
}

TEST(FutureTest, WhenAllGivesTheFirstErrorInListOrder) {
  Promise<> a, b, c;
  Future<> all = WhenAll({a.future(), b.future(), c.future()});
  c.Set(absl::DataLossError("c"));
  a.Set(absl::OkStatus());
  EXPECT_FALSE(all.IsReady());
  b.Set(absl::NotFoundError("b"));
  EXPECT_EQ(all.Await(), absl::NotFoundError("b"));
  EXPECT_TRUE(WhenAll({}).Await().ok());
}

}  // namespace
}  // namespace openpathways
