#include "transport/first_bytes.h"

#include <sys/socket.h>

#include <cstring>
#include <future>
#include <string>

#include "gtest/gtest.h"
#include "transport/address.h"
#include "transport/frame.h"
#include "transport/socket.h"
#include "transport/transport.h"

namespace openpathways::transport {
namespace {

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string OwnHello() {
  char hello[kHelloSize];
  EncodeHello(hello);
  return std::string(hello, sizeof(hello));
}

TEST(SpeakerTest, IsKnownFromTheFirstBytes) {
  EXPECT_EQ(SpeakerFrom(""), Speaker::kUndecided);
  EXPECT_EQ(SpeakerFrom(OwnHello()), Speaker::kTransport);
  EXPECT_EQ(SpeakerFrom(OwnHello().substr(0, 1)), Speaker::kTransport);
  EXPECT_EQ(SpeakerFrom("PRI"), Speaker::kUndecided);
  EXPECT_EQ(SpeakerFrom(kPreface), Speaker::kHttp2);
  EXPECT_EQ(SpeakerFrom(kPreface + "more"), Speaker::kHttp2);
  for (const char* other : {"GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "PRI * HTTP/1", "\x16\x03\x01", "\r\n"}) {
    EXPECT_EQ(SpeakerFrom(other), Speaker::kOther) << other;
  }
}

class FirstBytesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    transport_ = *Transport::Create();
    port_ = *transport_->Listen(
        0, [](ConnectionRef) { return ConnectionCallbacks(); }, [this](int fd) { http2_.set_value(UniqueFd(fd)); });
  }

  UniqueFd Dial() {
    const SocketAddress address = Resolve({"127.0.0.1", port_})->front();
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(fd.get(), address.get(), address.length), 0);
    return fd;
  }

  // What the server says until it closes the connection.
  static std::string ReadAll(int fd) {
    std::string all;
    char bytes[100];
    for (ssize_t n; (n = recv(fd, bytes, sizeof(bytes), 0)) > 0;) all.append(bytes, n);
    return all;
  }

  std::promise<UniqueFd> http2_;
  std::unique_ptr<Transport> transport_;
  int port_ = 0;
};

TEST_F(FirstBytesTest, Http2IsHandedOnWithAllItsBytes) {
  UniqueFd client = Dial();
  for (char byte : kPreface) ASSERT_EQ(send(client.get(), &byte, 1, 0), 1);
  UniqueFd server = http2_.get_future().get();
  std::string received(kPreface.size(), '\0');
  ASSERT_EQ(recv(server.get(), received.data(), received.size(), MSG_WAITALL), static_cast<ssize_t>(received.size()));
  EXPECT_EQ(received, kPreface);
  server.reset();
  EXPECT_EQ(ReadAll(client.get()), "");
}

TEST_F(FirstBytesTest, OthersAreLetGoWithoutAWord) {
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\0\1\2\3", 4)}) {
    UniqueFd client = Dial();
    send(client.get(), text.data(), text.size(), 0);
    EXPECT_EQ(ReadAll(client.get()), "");
  }
  UniqueFd silent = Dial();
  shutdown(silent.get(), SHUT_WR);
  EXPECT_EQ(ReadAll(silent.get()), "");
}

}  // namespace
}  // namespace openpathways::transport
