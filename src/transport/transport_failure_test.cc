// Peers that die, lie, are not there or are something else.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/address.h"
#include "transport/arena.h"
#include "transport/frame.h"
#include "transport/socket.h"
#include "transport/transport.h"
#include "transport/transport_testing.h"

namespace openpathways::transport {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// A process that runs transport_test_peer; killed at the latest by the destructor.
class PeerProcess {
 public:
  // `inherited_fd`, if any, stays open in the child.
  PeerProcess(std::string mode, std::string target, int inherited_fd = -1) {
    std::string program = TRANSPORT_TEST_PEER;
    char* const argv[] = {program.data(), mode.data(), target.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Duplicating a descriptor onto itself clears its close-on-exec flag in the child.
    if (inherited_fd >= 0) posix_spawn_file_actions_adddup2(&actions, inherited_fd, inherited_fd);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~PeerProcess() {
    if (pid_ > 0) Kill();
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

// A plain blocking socket, connected to the port by TCP or by its Unix socket.
UniqueFd RawConnect(int port, bool unix_socket) {
  const SocketAddress address =
      unix_socket ? UnixAddressOfPort(port) : Resolve(HostPort{"127.0.0.1", port}).value().front();
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), address.get(), address.length), 0) << std::strerror(errno);
  const timeval timeout{.tv_sec = 60, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  return fd;
}

void RawSend(const UniqueFd& fd, const void* data, size_t size) { send(fd.get(), data, size, MSG_NOSIGNAL); }

// Reads until the other side closes. False if it does not.
bool IsClosedByPeer(const UniqueFd& fd) {
  char bytes[4096];
  while (true) {
    const ssize_t n = recv(fd.get(), bytes, sizeof(bytes), 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
    if (n < 0) return false;
  }
}

std::string Hello() {
  char hello[kHelloSize];
  EncodeHello(hello);
  return std::string(hello, kHelloSize);
}

class StrangerTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Sockets, StrangerTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Unix" : "Tcp"; });

TEST_P(StrangerTest, GarbageOnlyClosesItsConnection) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  ConnectionRef good = transport->Connect(server.address(), {});
  Server::Client good_client = server.Accept();

  std::mt19937 random(7);
  std::string another_version = Hello();
  another_version[8] = 99;
  std::vector<std::string> inputs = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01", another_version};
  for (int i = 0; i < 20; ++i) {
    std::string bytes(1 + random() % 5000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    inputs.push_back(bytes);
  }
  for (const std::string& input : inputs) {
    UniqueFd fd = RawConnect(server.port(), GetParam());
    RawSend(fd, input.data(), input.size());
    EXPECT_TRUE(IsClosedByPeer(fd));
  }
  { UniqueFd silent = RawConnect(server.port(), GetParam()); }
  good->Send("still fine");
  EXPECT_EQ(good_client.inbox->TakeOne().header, "still fine");
  EXPECT_EQ(server.accepted(), 1u) << "strangers are not shown to the application";
}

TEST_P(StrangerTest, GarbageAfterTheHelloEndsTheConnection) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  const bool unix_socket = GetParam();
  std::vector<FramePrefix> lies = {
      {.magic = 17},
      {.header_size = kMaxHeaderSize + 1},
      {.place = PayloadPlace::kInline, .payload_size = uint64_t{200} << 30},  // more than there is memory
      {.place = PayloadPlace::kShared, .payload_size = 4096, .segment = 5, .loan = 1},
      {.type = FrameType::kRelease, .loan = 12},
      {.type = FrameType::kSegment, .payload_size = 4096, .segment = 5},  // but no descriptor
      {.type = static_cast<FrameType>(77)},
  };
  for (const FramePrefix& lie : lies) {
    UniqueFd fd = RawConnect(server.port(), unix_socket);
    const std::string hello = Hello();
    RawSend(fd, hello.data(), hello.size());
    RawSend(fd, &lie, sizeof(lie));
    Server::Client client = server.Accept();
    EXPECT_TRUE(absl::IsUnavailable(client.inbox->AwaitClosed()));
    EXPECT_TRUE(IsClosedByPeer(fd));
  }
  EXPECT_EQ(transport->arena().allocated_bytes(), 0u);
}

TEST_P(StrangerTest, APeerThatStopsInTheMiddleOfAMessageLeaksNothing) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  {
    UniqueFd fd = RawConnect(server.port(), GetParam());
    const std::string hello = Hello();
    RawSend(fd, hello.data(), hello.size());
    const FramePrefix prefix{.place = PayloadPlace::kInline, .header_size = 10, .payload_size = kMiB};
    RawSend(fd, &prefix, sizeof(prefix));
    RawSend(fd, "0123456789abc", 13);
    EXPECT_TRUE(Eventually([&] { return transport->arena().allocated_bytes() == kMiB; }));
  }
  EXPECT_TRUE(absl::IsUnavailable(server.Accept().inbox->AwaitClosed()));
  EXPECT_TRUE(Eventually([&] { return transport->arena().allocated_bytes() == 0; }));
}

TEST(ListenTest, PortInUse) {
  auto first = Transport::Create().value();
  auto second = Transport::Create().value();
  Server server(*first);
  absl::StatusOr<int> port = second->Listen(server.port(), [](ConnectionRef) { return ConnectionCallbacks(); });
  EXPECT_TRUE(absl::IsAlreadyExists(port.status())) << port.status();
  EXPECT_THAT(std::string(port.status().message()), HasSubstr(absl::StrCat("port ", server.port())));
}

TEST(ListenTest, PortIsFreeAgainAfterTheTransport) {
  auto transport = Transport::Create().value();
  const int port = Server(*transport).port();
  transport.reset();
  transport = Transport::Create().value();
  EXPECT_EQ(transport->Listen(port, [](ConnectionRef) { return ConnectionCallbacks(); }).value(), port);
}

TEST(ConnectFailureTest, Refused) {
  auto transport = Transport::Create().value();
  int port;
  {
    auto other = Transport::Create().value();
    port = Server(*other).port();
  }
  auto inbox = std::make_shared<Inbox>();
  ConnectionRef connection = transport->Connect(absl::StrCat("127.0.0.1:", port), Inbox::CallbacksOf(inbox));
  connection->Send("dropped", transport->arena().Allocate(10'000).value());
  const absl::Status status = inbox->AwaitClosed();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("127.0.0.1:", port)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("refused"));
  EXPECT_TRUE(Eventually([&] { return transport->arena().allocated_bytes() == 0; }));
}

TEST(ConnectFailureTest, BadAddresses) {
  auto transport = Transport::Create().value();
  for (const char* address : {"", "nohost", ":1", "a:b", "1.2.3.4:99999", "::1:80", "no-such-host.invalid:80"}) {
    auto inbox = std::make_shared<Inbox>();
    transport->Connect(address, Inbox::CallbacksOf(inbox));
    EXPECT_TRUE(absl::IsUnavailable(inbox->AwaitClosed())) << address;
  }
}

TEST(ConnectFailureTest, CloseWhileConnecting) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  auto inbox = std::make_shared<Inbox>();
  ConnectionRef connection = transport->Connect(server.address(), Inbox::CallbacksOf(inbox));
  connection->Send("sent before");
  connection->Close();
  EXPECT_TRUE(inbox->AwaitClosed().ok());
  EXPECT_EQ(server.Accept().inbox->TakeOne().header, "sent before");
}

TEST(ConnectFailureTest, TheOtherSideIsNoTransport) {
  UniqueFd listener = ListenTcp(0).value();
  const int port = BoundPort(listener.get()).value();
  auto transport = Transport::Create().value();
  auto inbox = std::make_shared<Inbox>();
  transport->Connect(absl::StrCat("127.0.0.1:", port), Inbox::CallbacksOf(inbox));
  UniqueFd accepted;
  EXPECT_TRUE(Eventually([&] {
    accepted = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return accepted.valid();
  }));
  RawSend(accepted, "SSH-2.0-something\r\n", 19);
  const absl::Status status = inbox->AwaitClosed();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not speak"));
}

TEST(ConnectFailureTest, AdoptingNonsense) {
  auto transport = Transport::Create().value();
  auto inbox = std::make_shared<Inbox>();
  transport->Adopt(open("/dev/null", O_RDWR | O_CLOEXEC), Inbox::CallbacksOf(inbox));
  EXPECT_TRUE(absl::IsUnavailable(inbox->AwaitClosed()));
}

class PeerDeathTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Transport> transport_ = Transport::Create({.shared_memory = GetParam()}).value();
  Server server_{*transport_};
};
INSTANTIATE_TEST_SUITE_P(Links, PeerDeathTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

TEST_P(PeerDeathTest, IsSeenAndItsReferencesEnd) {
  PeerProcess peer("hold", server_.address());
  Server::Client client = server_.Accept();
  for (int i = 0; i < 5; ++i) client.connection->Send("hold", transport_->arena().Allocate(kMiB).value());
  client.inbox->Take(5);
  EXPECT_EQ(transport_->arena().allocated_bytes(), GetParam() ? 5 * kMiB : 0);
  peer.Kill();
  EXPECT_TRUE(absl::IsUnavailable(client.inbox->AwaitClosed()));
  EXPECT_TRUE(Eventually([&] { return transport_->arena().allocated_bytes() == 0; }));
}

TEST_P(PeerDeathTest, IsSeenWithAFullQueue) {
  PeerProcess peer("block", server_.address());
  Server::Client client = server_.Accept();
  client.connection->Send("block");
  EXPECT_EQ(client.inbox->TakeOne().header, "blocking");
  for (int i = 0; i < 20; ++i) client.connection->Send("x", HeapBuffer(kMiB));
  Signal called;
  client.connection->OnQueueBelow(0, [&] { called.Set(); });
  EXPECT_GT(client.connection->queued_bytes(), 0u);
  peer.Kill();
  EXPECT_TRUE(absl::IsUnavailable(client.inbox->AwaitClosed()));
  EXPECT_TRUE(called.Await());
}

TEST_P(PeerDeathTest, WhatItSentStaysReadable) {
  PeerProcess peer("lend-and-die", server_.address());
  Server::Client client = server_.Accept();
  EXPECT_TRUE(absl::IsUnavailable(client.inbox->AwaitClosed()));
  peer.Wait();
  std::vector<Message> messages = client.inbox->Take(3);
  for (size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ(messages[i].payload.size(), kMiB);
    EXPECT_TRUE(HasPattern(messages[i].payload, i));
  }
}

TEST_P(PeerDeathTest, AnOrderlyExitLosesNothing) {
  PeerProcess peer("send-and-exit", server_.address());
  Server::Client client = server_.Accept();
  EXPECT_TRUE(absl::IsUnavailable(client.inbox->AwaitClosed()));
  EXPECT_EQ(peer.Wait(), 0);
  std::vector<Message> messages = client.inbox->Take(100);
  ASSERT_EQ(messages.size(), 100u);
  for (size_t i = 0; i < messages.size(); ++i) EXPECT_TRUE(HasPattern(messages[i].payload, i));
}

TEST(AdoptTest, AcrossExec) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  auto transport = Transport::Create().value();
  auto inbox = std::make_shared<Inbox>();
  ConnectionRef connection = transport->Adopt(fds[0], Inbox::CallbacksOf(inbox));
  PeerProcess peer("hold", absl::StrCat("fd:", fds[1]), fds[1]);
  close(fds[1]);
  connection->Send("x", transport->arena().Allocate(kMiB).value());
  EXPECT_EQ(inbox->TakeOne().header, "holding");
  peer.Kill();
  EXPECT_TRUE(absl::IsUnavailable(inbox->AwaitClosed()));
  EXPECT_TRUE(Eventually([&] { return transport->arena().allocated_bytes() == 0; }));
}

// Lowers the number of descriptors that this process may open, for a while.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &previous_);
    rlimit few = previous_;
    few.rlim_cur = limit;
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &previous_); }

 private:
  rlimit previous_;
};

TEST(DescriptorsTest, AcceptGoesOnWhenThereAreSomeAgain) {
  auto transport = Transport::Create().value();
  Server server(*transport);
  auto inbox = std::make_shared<Inbox>();
  ConnectionRef open_before = transport->Connect(server.address(), Inbox::CallbacksOf(inbox));
  Server::Client other_end = server.Accept();
  UniqueFd waiting(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = UnixAddressOfPort(server.port());
  {
    FewDescriptors few(0);
    ASSERT_FALSE(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)).valid());
    ASSERT_EQ(connect(waiting.get(), address.get(), address.length), 0);
    const std::string hello = Hello();
    RawSend(waiting, hello.data(), hello.size());
    // Meanwhile what is open works.
    for (int i = 0; i < 10; ++i) {
      open_before->Send("ping");
      other_end.inbox->TakeOne();
    }
    EXPECT_EQ(server.accepted(), 1u);
  }
  server.Accept();
}

TEST(DescriptorsTest, MemoryWorksWithoutDescriptors) {
  FewDescriptors few(0);
  auto arena = SharedArena::Create(kMiB);
  Buffer buffer = arena->Allocate(kMiB).value();
  std::memset(buffer.data(), 1, buffer.size());
  EXPECT_FALSE(arena->Find(buffer.data(), buffer.size()).has_value());
}

}  // namespace
}  // namespace openpathways::transport
