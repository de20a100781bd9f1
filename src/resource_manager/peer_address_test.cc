#include "resource_manager/peer_address.h"

#include "gtest/gtest.h"

namespace openpathways::resource_manager {
namespace {

TEST(PeerHostTest, TakesTheHostOutOfGrpcsUri) {
  EXPECT_EQ(PeerHost("ipv4:10.1.2.3:4567"), "10.1.2.3");
  EXPECT_EQ(PeerHost("ipv6:[::1]:4567"), "[::1]");
  EXPECT_EQ(PeerHost("ipv6:%5B::1%5D:4567"), "[::1]");
  EXPECT_EQ(PeerHost("ipv6:%5Bfe80::2%25eth0%5D:4567"), "[fe80::2%eth0]");
  EXPECT_EQ(PeerHost("ipv6:[::ffff:10.1.2.3]:4567"), "10.1.2.3");
  EXPECT_EQ(PeerHost("unix:/tmp/socket"), "localhost");
  EXPECT_EQ(PeerHost(""), "localhost");
}

}  // namespace
}  // namespace openpathways::resource_manager
