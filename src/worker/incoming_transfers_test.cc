#include "worker/incoming_transfers.h"

#include <memory>

#include "gtest/gtest.h"

namespace openpathways::worker {
namespace {

transport::Buffer OneByte() {
  auto byte = std::make_shared<std::byte>(std::byte{7});
  return transport::Buffer(byte, byte.get(), 1);
}

TEST(IncomingTransfersTest, MatchesInEitherOrder) {
  IncomingTransfers transfers;
  transfers.Arrive(1, 10, OneByte());
  EXPECT_EQ(transfers.Expect(1, 10, 5).Await()->size(), 1);

  Future<transport::Buffer> later = transfers.Expect(1, 11, 5);
  EXPECT_FALSE(later.IsReady());
  transfers.Arrive(2, 11, OneByte());  // of another controller
  EXPECT_FALSE(later.IsReady());
  transfers.Arrive(1, 11, absl::DataLossError("gone"));
  EXPECT_TRUE(absl::IsDataLoss(later.Await().status()));
}

TEST(IncomingTransfersTest, LostPeerFailsWhatHasNotArrived) {
  IncomingTransfers transfers;
  transfers.Arrive(1, 1, OneByte());
  Future<transport::Buffer> pending = transfers.Expect(1, 2, 5);
  Future<transport::Buffer> other = transfers.Expect(1, 3, 6);
  transfers.OnPeerLost(5, absl::DataLossError("slice 0 host 1 is lost"));
  EXPECT_TRUE(absl::IsDataLoss(pending.Await().status()));
  EXPECT_TRUE(absl::IsDataLoss(transfers.Expect(1, 4, 5).Await().status()));
  EXPECT_TRUE(transfers.Expect(1, 1, 5).Await().ok());
  EXPECT_FALSE(other.IsReady());
}

TEST(IncomingTransfersTest, DroppedControllerLeavesNothing) {
  IncomingTransfers transfers;
  auto byte = std::make_shared<std::byte>();
  std::weak_ptr<std::byte> alive = byte;
  transfers.Arrive(1, 1, transport::Buffer(byte, byte.get(), 1));
  Future<transport::Buffer> pending = transfers.Expect(1, 2, 5);
  byte.reset();
  EXPECT_FALSE(alive.expired());
  transfers.DropController(1);
  EXPECT_TRUE(alive.expired());
  EXPECT_TRUE(absl::IsCancelled(pending.Await().status()));

  byte = std::make_shared<std::byte>();
  alive = byte;
  transfers.Arrive(1, 3, transport::Buffer(byte, byte.get(), 1));
  byte.reset();
  EXPECT_TRUE(alive.expired());
}

TEST(IncomingTransfersTest, TwiceIsAnError) {
  IncomingTransfers transfers;
  Future<transport::Buffer> first = transfers.Expect(1, 1, 5);
  EXPECT_TRUE(absl::IsAlreadyExists(transfers.Expect(1, 1, 5).Await().status()));
  transfers.Arrive(1, 1, OneByte());
  EXPECT_TRUE(first.Await().ok());
}

}  // namespace
}  // namespace openpathways::worker
