// Behaviour that is the same over every kind of connection, and what is special about shared memory.
#include "transport/transport.h"

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/transport_testing.h"

namespace openpathways::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kMiB = size_t{1} << 20;

enum class Link { kSharedMemory, kTcp, kSocketPair };

// Two transports and one connection between them.
class LinkedPair {
 public:
  explicit LinkedPair(Link link) {
    const TransportOptions options{.shared_memory = link != Link::kTcp};
    left_transport = Transport::Create(options).value();
    right_transport = Transport::Create(options).value();
    if (link == Link::kSocketPair) {
      int fds[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
      left = left_transport->Adopt(fds[0], Inbox::CallbacksOf(left_inbox));
      right = right_transport->Adopt(fds[1], Inbox::CallbacksOf(right_inbox));
      return;
    }
    Server server(*right_transport);
    left = left_transport->Connect(server.address(), Inbox::CallbacksOf(left_inbox));
    Server::Client accepted = server.Accept();
    right = accepted.connection;
    right_inbox = accepted.inbox;
  }

  // Both ends can send to each other: the connection stands.
  void AwaitOpen() {
    left->Send("ping");
    right_inbox->TakeOne();
    right->Send("pong");
    left_inbox->TakeOne();
  }

  std::shared_ptr<Inbox> left_inbox = std::make_shared<Inbox>();
  std::shared_ptr<Inbox> right_inbox = std::make_shared<Inbox>();
  std::unique_ptr<Transport> left_transport;
  std::unique_ptr<Transport> right_transport;
  ConnectionRef left;
  ConnectionRef right;
};

class TransportTest : public ::testing::TestWithParam<Link> {};

std::string LinkName(const ::testing::TestParamInfo<Link>& info) {
  constexpr const char* kNames[] = {"SharedMemory", "Tcp", "SocketPair"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Links, TransportTest, ::testing::Values(Link::kSharedMemory, Link::kTcp, Link::kSocketPair),
                         LinkName);

TEST_P(TransportTest, MessagesGoBothWays) {
  LinkedPair pair(GetParam());
  pair.left->Send("hello");
  EXPECT_EQ(pair.right_inbox->TakeOne().header, "hello");
  pair.right->Send("");
  Message message = pair.left_inbox->TakeOne();
  EXPECT_EQ(message.header, "");
  EXPECT_TRUE(message.payload.empty());
  EXPECT_EQ(pair.left->is_shared_memory(), GetParam() != Link::kTcp);
  EXPECT_EQ(pair.right->is_shared_memory(), GetParam() != Link::kTcp);
}

TEST_P(TransportTest, OrderAndIntegrityForRandomSizes) {
  LinkedPair pair(GetParam());
  std::mt19937 random(42);
  constexpr int kMessages = 150;
  Arena& arena = pair.left_transport->arena();
  for (int i = 0; i < kMessages; ++i) {
    // All magnitudes from 0 to 256 KiB, some in the arena and some not, some slices.
    const size_t size = i % 10 == 0 ? 0 : random() % (size_t{1} << (1 + random() % 18));
    const size_t margin = i % 3 == 0 ? 64 : 0;
    Buffer whole = i % 4 == 1 ? HeapBuffer(size + 2 * margin) : arena.Allocate(size + 2 * margin).value();
    Buffer payload = whole.Slice(margin, size);
    FillPattern(payload, i);
    pair.left->Send(absl::StrCat(i, ":", size, std::string(i % 7 == 0 ? 100'000 : i, 'x')), std::move(payload));
  }
  std::vector<Message> messages = pair.right_inbox->Take(kMessages);
  ASSERT_EQ(messages.size(), static_cast<size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_THAT(messages[i].header, StartsWith(absl::StrCat(i, ":", messages[i].payload.size(), "x")));
    ASSERT_TRUE(HasPattern(messages[i].payload, i)) << i;
  }
}

TEST_P(TransportTest, MessagesSentTogetherKeepTheirOrder) {
  LinkedPair pair(GetParam());
  constexpr int kRounds = 20;
  constexpr int kTogether = 60;  // more than one system call takes
  int next = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Message> together;
    for (int i = 0; i < kTogether; ++i, ++next) {
      Buffer payload = pair.left_transport->arena().Allocate(i % 9 == 0 ? 100'000 : i).value();
      FillPattern(payload, next);
      together.push_back({std::to_string(next), std::move(payload)});
    }
    pair.left->SendAll(std::move(together));
    pair.left->Send(std::to_string(next++));
  }
  pair.left->SendAll({});
  pair.left->Close();
  const std::vector<Message> messages = pair.right_inbox->Take(next);
  ASSERT_EQ(messages.size(), static_cast<size_t>(next));
  for (int i = 0; i < next; ++i) {
    ASSERT_EQ(messages[i].header, std::to_string(i));
    ASSERT_TRUE(HasPattern(messages[i].payload, i)) << i;
  }
  pair.left->SendAll({{"dropped", Buffer()}});
  EXPECT_FALSE(pair.right_inbox->AwaitClosed().ok());
}

TEST_P(TransportTest, BigPayloads) {
  LinkedPair pair(GetParam());
  for (size_t size : {kMiB, 16 * kMiB + 1, 64 * kMiB}) {
    for (bool in_arena : {true, false}) {
      Buffer payload = in_arena ? pair.left_transport->arena().Allocate(size).value() : HeapBuffer(size);
      FillPattern(payload, size);
      pair.left->Send("big", std::move(payload));
      Message message = pair.right_inbox->TakeOne();
      ASSERT_EQ(message.payload.size(), size);
      EXPECT_TRUE(HasPattern(message.payload, size));
    }
  }
}

TEST_P(TransportTest, BigHeaders) {
  LinkedPair pair(GetParam());
  const std::string header(20 * kMiB, 'h');
  pair.left->Send(header, HeapBuffer(10));
  Message message = pair.right_inbox->TakeOne();
  EXPECT_EQ(message.header, header);
  EXPECT_EQ(message.payload.size(), 10u);
}

TEST_P(TransportTest, BothSidesSendMuchAtOnce) {
  LinkedPair pair(GetParam());
  constexpr int kMessages = 30;
  auto flood = [](const ConnectionRef& connection) {
    for (int i = 0; i < kMessages; ++i) {
      Buffer payload = HeapBuffer(kMiB);
      FillPattern(payload, i);
      connection->Send(absl::StrCat(i), std::move(payload));
    }
  };
  std::thread other([&] { flood(pair.right); });
  flood(pair.left);
  other.join();
  for (const auto& inbox : {pair.left_inbox, pair.right_inbox}) {
    std::vector<Message> messages = inbox->Take(kMessages);
    for (size_t i = 0; i < messages.size(); ++i) {
      ASSERT_EQ(messages[i].header, absl::StrCat(i));
      ASSERT_TRUE(HasPattern(messages[i].payload, i));
    }
  }
}

TEST_P(TransportTest, EachOfManySendersKeepsItsOrder) {
  LinkedPair pair(GetParam());
  constexpr int kThreads = 6;
  constexpr int kEach = 300;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&pair, t] {
      for (int i = 0; i < kEach; ++i) {
        Buffer payload = pair.left_transport->arena().Allocate(i % 5 == 0 ? 50'000 : 100).value();
        FillPattern(payload, t * kEach + i);
        pair.left->Send(std::string{static_cast<char>(t)} + std::to_string(i), std::move(payload));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> next(kThreads, 0);
  for (const Message& message : pair.right_inbox->Take(kThreads * kEach)) {
    const int t = message.header[0];
    ASSERT_EQ(message.header.substr(1), std::to_string(next[t]));
    ASSERT_TRUE(HasPattern(message.payload, t * kEach + next[t]));
    ++next[t];
  }
}

TEST_P(TransportTest, NothingLeaks) {
  LinkedPair pair(GetParam());
  for (int i = 0; i < 20; ++i) {
    pair.left->Send("x", pair.left_transport->arena().Allocate(100 + i * 50'000).value());
    pair.right_inbox->TakeOne();
  }
  auto nothing_left = [&] {
    return pair.left_transport->arena().allocated_bytes() == 0 &&
           pair.right_transport->arena().allocated_bytes() == 0 && pair.left->queued_bytes() == 0;
  };
  EXPECT_TRUE(Eventually(nothing_left));
}

TEST_P(TransportTest, CloseDeliversWhatWasSent) {
  LinkedPair pair(GetParam());
  constexpr int kMessages = 50;
  for (int i = 0; i < kMessages; ++i) pair.left->Send(absl::StrCat(i), HeapBuffer(100'000));
  pair.left->Close();
  pair.left->Close();
  pair.left->Send("too late");
  EXPECT_TRUE(pair.left_inbox->AwaitClosed().ok());
  EXPECT_TRUE(absl::IsUnavailable(pair.right_inbox->AwaitClosed()));
  EXPECT_EQ(pair.right_inbox->message_count(), static_cast<size_t>(kMessages));
  pair.right->Send("into the void");
  EXPECT_EQ(pair.right->queued_bytes(), 0u);
}

TEST_P(TransportTest, DestroyingATransportClosesItsConnections) {
  LinkedPair pair(GetParam());
  pair.AwaitOpen();
  pair.left->Send("last words", pair.left_transport->arena().Allocate(100'000).value());
  pair.left_transport.reset();
  EXPECT_TRUE(pair.left_inbox->closed());
  EXPECT_TRUE(pair.left_inbox->AwaitClosed().ok());
  EXPECT_TRUE(absl::IsUnavailable(pair.right_inbox->AwaitClosed()));
  EXPECT_EQ(pair.right_inbox->message_count(), 1u);
  pair.left->Send("void");
  pair.left->Close();
  Signal called;
  pair.left->OnQueueBelow(0, [&] { called.Set(); });
  EXPECT_TRUE(called.IsSet());
}

TEST_P(TransportTest, BuffersOutliveTransports) {
  LinkedPair pair(GetParam());
  Buffer payload = pair.left_transport->arena().Allocate(kMiB).value();
  FillPattern(payload, 5);
  pair.left->Send("x", payload);
  Message received = pair.right_inbox->TakeOne();
  pair.left_transport.reset();
  EXPECT_TRUE(HasPattern(received.payload, 5));
  pair.right_transport.reset();
  EXPECT_TRUE(HasPattern(received.payload, 5));
  EXPECT_TRUE(HasPattern(payload, 5));
}

TEST_P(TransportTest, CallbacksMaySendCloseAndDropReferences) {
  auto server = Transport::Create({.shared_memory = GetParam() != Link::kTcp}).value();
  auto client = Transport::Create({.shared_memory = GetParam() != Link::kTcp}).value();
  // The server answers from its callback, closes, and drops the only reference that the test holds.
  auto held = std::make_shared<ConnectionRef>();
  const int port = server
                       ->Listen(0,
                                [held](ConnectionRef connection) {
                                  *held = std::move(connection);
                                  ConnectionCallbacks callbacks;
                                  callbacks.on_message = [held](Message message) {
                                    (*held)->Send("re: " + message.header, message.payload);
                                    (*held)->Close();
                                    held->reset();
                                  };
                                  return callbacks;
                                })
                       .value();
  auto inbox = std::make_shared<Inbox>();
  ConnectionRef connection = client->Connect(absl::StrCat("127.0.0.1:", port), Inbox::CallbacksOf(inbox));
  connection->Send("question", client->arena().Allocate(10'000).value());
  EXPECT_TRUE(absl::IsUnavailable(inbox->AwaitClosed()));
  Message answer = inbox->TakeOne();
  EXPECT_EQ(answer.header, "re: question");
  EXPECT_EQ(answer.payload.size(), 10'000u);
}

TEST_P(TransportTest, CallbackMayConnect) {
  auto transport = Transport::Create({.shared_memory = GetParam() != Link::kTcp}).value();
  Server server(*transport);
  auto second = std::make_shared<Inbox>();
  ConnectionCallbacks callbacks;
  callbacks.on_closed = [&, second](absl::Status) {
    transport->Connect(server.address(), Inbox::CallbacksOf(second))->Send("again");
  };
  transport->Connect(server.address(), std::move(callbacks))->Close();
  EXPECT_TRUE(absl::IsUnavailable(server.Accept().inbox->AwaitClosed()));
  EXPECT_EQ(server.Accept().inbox->TakeOne().header, "again");
}

TEST_P(TransportTest, OnQueueBelowHoldsTheSenderBack) {
  LinkedPair pair(GetParam());
  pair.AwaitOpen();
  constexpr size_t kLimit = 4 * kMiB;
  constexpr int kMessages = 60;
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      Signal room;
      pair.left->OnQueueBelow(kLimit, [&] { room.Set(); });
      ASSERT_TRUE(room.Await());
      EXPECT_LE(pair.left->queued_bytes(), kLimit);
      pair.left->Send(absl::StrCat(i), pair.left_transport->arena().Allocate(kMiB).value());
    }
  });
  for (int received = 0; received < kMessages;) received += pair.right_inbox->Take(1).size();
  sender.join();
}

TEST_P(TransportTest, OnQueueBelowEndsWithTheConnection) {
  LinkedPair pair(GetParam());
  pair.AwaitOpen();
  // The receiver holds (shared memory) or cannot keep up; in any case the connection goes away.
  for (int i = 0; i < 8; ++i) pair.left->Send("x", pair.left_transport->arena().Allocate(8 * kMiB).value());
  Signal called;
  pair.left->OnQueueBelow(0, [&] { called.Set(); });
  pair.left->Close();
  EXPECT_TRUE(called.Await());
  EXPECT_TRUE(pair.left_inbox->AwaitClosed().ok());
}

TEST_P(TransportTest, AMessageThatIsTooBigEndsTheConnection) {
  LinkedPair pair(GetParam());
  pair.AwaitOpen();
  pair.left->Send(std::string(65 * kMiB, 'x'));
  EXPECT_THAT(pair.left_inbox->AwaitClosed().ToString(), HasSubstr("too big"));
  EXPECT_TRUE(absl::IsUnavailable(pair.right_inbox->AwaitClosed()));
}

TEST(SharedMemoryTest, PayloadsAreReadInPlaceAndCountedUntilReleased) {
  LinkedPair pair(Link::kSharedMemory);
  pair.AwaitOpen();
  Buffer payload = pair.left_transport->arena().Allocate(kMiB).value();
  payload.data()[5] = std::byte{1};
  pair.left->Send("x", payload);
  Message message = pair.right_inbox->TakeOne();
  EXPECT_EQ(pair.right_transport->arena().allocated_bytes(), 0u) << "nothing was copied";
  payload.data()[5] = std::byte{2};  // forbidden, but it shows whose bytes these are
  EXPECT_EQ(message.payload.data()[5], std::byte{2});
  payload = Buffer();
  EXPECT_EQ(pair.left_transport->arena().allocated_bytes(), kMiB);
  EXPECT_TRUE(Eventually([&] { return pair.left->queued_bytes() == kMiB; }));
  Signal released;
  pair.left->OnQueueBelow(0, [&] { released.Set(); });
  message = Message();
  EXPECT_TRUE(released.Await());
  EXPECT_TRUE(Eventually([&] { return pair.left_transport->arena().allocated_bytes() == 0; }));
}

TEST(SharedMemoryTest, SmallPayloadsAreCopied) {
  LinkedPair pair(Link::kSharedMemory);
  pair.left->Send("x", pair.left_transport->arena().Allocate(4095).value());
  Message message = pair.right_inbox->TakeOne();
  EXPECT_EQ(pair.right_transport->arena().allocated_bytes(), 4095u);
  EXPECT_TRUE(Eventually([&] { return pair.left_transport->arena().allocated_bytes() == 0; }));
}

TEST(SharedMemoryTest, MemoryIsNotReusedWhileItIsReadAfterClose) {
  for (bool receiver_closes : {false, true}) {
    LinkedPair pair(Link::kSharedMemory);
    Buffer payload = pair.left_transport->arena().Allocate(kMiB).value();
    FillPattern(payload, 9);
    pair.left->Send("x", std::move(payload));
    Message message = pair.right_inbox->TakeOne();
    (receiver_closes ? pair.right : pair.left)->Close();
    EXPECT_EQ(pair.left_inbox->AwaitClosed().ok(), !receiver_closes);
    EXPECT_EQ(pair.right_inbox->AwaitClosed().ok(), receiver_closes);
    // Whatever is allocated now must lie elsewhere.
    for (int i = 0; i < 20; ++i) FillPattern(pair.left_transport->arena().Allocate(kMiB).value(), 77);
    EXPECT_TRUE(HasPattern(message.payload, 9));
    EXPECT_EQ(pair.left_transport->arena().allocated_bytes(), kMiB);
    message = Message();
    EXPECT_TRUE(Eventually([&] { return pair.left_transport->arena().allocated_bytes() == 0; }));
  }
}

TEST(SharedMemoryTest, MemoryComesBackWhenTheReadersTransportIsGoneAndItHasReadEnough) {
  LinkedPair pair(Link::kSharedMemory);
  pair.left->Send("x", pair.left_transport->arena().Allocate(kMiB).value());
  Message message = pair.right_inbox->TakeOne();
  pair.right.reset();
  pair.right_transport.reset();
  EXPECT_TRUE(absl::IsUnavailable(pair.left_inbox->AwaitClosed()));
  EXPECT_EQ(pair.left_transport->arena().allocated_bytes(), kMiB);
  message = Message();
  EXPECT_TRUE(Eventually([&] { return pair.left_transport->arena().allocated_bytes() == 0; }));
}

TEST(SharedMemoryTest, SegmentsComeAndGo) {
  // No cache: each payload has a new segment, and the receiver has to forget the old ones.
  auto sender = Transport::Create({.arena_cache_bytes = 0}).value();
  auto receiver = Transport::Create().value();
  Server server(*receiver);
  ConnectionRef connection = sender->Connect(server.address(), {});
  auto inbox = server.Accept().inbox;
  for (int i = 0; i < 300; ++i) {
    Buffer payload = sender->arena().Allocate(kMiB).value();
    FillPattern(payload.Slice(0, 4096), i);
    connection->Send("x", std::move(payload));
    ASSERT_TRUE(HasPattern(inbox->TakeOne().payload.Slice(0, 4096), i));
  }
  EXPECT_TRUE(Eventually([&] { return sender->arena().allocated_bytes() == 0; }));
}

TEST(SharedMemoryTest, ReceivedPayloadsCanBeForwarded) {
  LinkedPair first(Link::kSharedMemory);
  LinkedPair second(Link::kSharedMemory);
  Buffer payload = first.left_transport->arena().Allocate(kMiB).value();
  FillPattern(payload, 3);
  first.left->Send("x", std::move(payload));
  Message message = first.right_inbox->TakeOne();
  second.left->Send("y", std::move(message.payload));
  EXPECT_TRUE(HasPattern(second.right_inbox->TakeOne().payload, 3));
  EXPECT_TRUE(Eventually([&] { return first.left_transport->arena().allocated_bytes() == 0; }));
}

TEST(ConnectTest, OfOneSideWithoutSharedMemoryIsTcp) {
  auto plain = Transport::Create({.shared_memory = false}).value();
  auto sharing = Transport::Create().value();
  Server server(*plain);
  ConnectionRef connection = sharing->Connect(server.address(), {});
  Server::Client client = server.Accept();
  connection->Send("x", sharing->arena().Allocate(100'000).value());
  EXPECT_EQ(client.inbox->TakeOne().payload.size(), 100'000u);
  EXPECT_FALSE(connection->is_shared_memory());
  EXPECT_THAT(connection->peer(), StartsWith("127.0.0.1:"));
}

TEST(ConnectTest, ByNameAndByIpv6) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  for (const char* host : {"localhost", "[::1]", "0.0.0.0"}) {
    ConnectionRef connection = transport->Connect(absl::StrCat(host, ":", server.port()), {});
    Server::Client client = server.Accept();
    connection->Send(host);
    EXPECT_EQ(client.inbox->TakeOne().header, host);
    EXPECT_TRUE(connection->is_shared_memory()) << host;
  }
}

TEST(ConnectTest, ToItselfIsFine) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  ConnectionRef connection = transport->Connect(server.address(), {});
  connection->Send("x", transport->arena().Allocate(100'000).value());
  EXPECT_EQ(server.Accept().inbox->TakeOne().payload.size(), 100'000u);
}

TEST(ConnectTest, ManyAtOnce) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  std::vector<ConnectionRef> connections;
  for (int i = 0; i < 200; ++i) {
    connections.push_back(transport->Connect(server.address(), {}));
    connections.back()->Send(absl::StrCat(i));
  }
  for (int i = 0; i < 200; ++i) server.Accept().inbox->TakeOne();
}

}  // namespace
}  // namespace openpathways::transport
