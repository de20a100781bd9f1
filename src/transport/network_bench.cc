// The transport over TCP beside a bare TCP stream, between two processes that may be in different network namespaces.
// `bench/network.py` makes the namespaces, runs both ends and prints the table.
//
//   network_bench serve --port=P                         answers; the transport at P, the bare stream at P + 1
//   network_bench measure KIND HOST --port=P             {"bytes_per_second", "round_trip_seconds"} as JSON
//   network_bench watch KIND HOST --port=P [--sending]   says "connected"; when the connection breaks, when and why
//
// KIND is `transport` or `socket`. Times are of CLOCK_MONOTONIC, in seconds.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "transport/transport.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLargeBytes = size_t{16} << 20;
constexpr size_t kSmallBytes = 64;
constexpr int kOutstanding = 2;  // large messages

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

double Now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// The client's end of a connection whose server answers every message. For one thread.
class Client {
 public:
  virtual ~Client() = default;
  virtual void Send(size_t bytes) = 0;
  // Waits until all messages but `outstanding` are answered. Ends the process if the connection breaks.
  virtual void WaitForAnswers(int64_t outstanding = 0) = 0;
  // Waits until the connection breaks, sending large messages meanwhile if `sending`; says why it broke.
  virtual std::string WaitForEnd(bool sending) = 0;
};

// The transport ------------------------------------------------------------------------------------------------------

class TransportClient : public Client {
 public:
  explicit TransportClient(const std::string& address)
      : transport_(Transport::Create({.shared_memory = false}).value()) {
    ConnectionCallbacks callbacks;
    callbacks.on_message = [this](Message) {
      std::lock_guard<std::mutex> lock(mu_);
      ++answered_;
      changed_.notify_all();
    };
    callbacks.on_closed = [this](absl::Status status) {
      std::lock_guard<std::mutex> lock(mu_);
      end_ = std::move(status);
      changed_.notify_all();
    };
    connection_ = transport_->Connect(address, std::move(callbacks));
  }

  void Send(size_t bytes) override {
    ++sent_;
    connection_->Send("header", transport_->arena().Allocate(bytes).value());
  }
  void WaitForAnswers(int64_t outstanding) override {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return end_.has_value() || answered_ >= sent_ - outstanding; });
    if (!end_.has_value()) return;
    std::fprintf(stderr, "%s\n", end_->ToString().c_str());
    std::exit(1);
  }
  std::string WaitForEnd(bool sending) override {
    std::unique_lock<std::mutex> lock(mu_);
    while (!end_.has_value()) {
      if (!sending) {
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      Send(kLargeBytes);
      lock.lock();
      changed_.wait(lock, [&] { return end_.has_value() || answered_ >= sent_ - kOutstanding; });
    }
    return end_->ToString();
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_:
  int64_t answered_ = 0;
  std::optional<absl::Status> end_;

  int64_t sent_ = 0;
  std::unique_ptr<Transport> transport_;  // destroyed before what its callbacks use
  ConnectionRef connection_;
};

std::unique_ptr<Transport> ServeTransport(int port) {
  auto transport = Transport::Create({.shared_memory = false}).value();
  auto accept = [](ConnectionRef connection) {
    ConnectionCallbacks callbacks;
    callbacks.on_message = [connection](Message) { connection->Send("answer"); };
    return callbacks;
  };
  const absl::StatusOr<int> listening = transport->Listen(port, accept);
  if (listening.ok()) return transport;
  std::fprintf(stderr, "%s\n", listening.status().ToString().c_str());
  std::exit(1);
}

// The bare stream ----------------------------------------------------------------------------------------------------
//
// message = size (8 bytes), so many bytes. answer = one byte.

bool WriteAll(int fd, const void* data, size_t size) {
  for (const char* next = static_cast<const char*>(data); size > 0;) {
    const ssize_t n = send(fd, next, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    next += n;
    size -= n;
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t size) {
  for (char* next = static_cast<char*>(data); size > 0;) {
    const ssize_t n = read(fd, next, size);
    if (n <= 0) return false;
    next += n;
    size -= n;
  }
  return true;
}

void SetNoDelay(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) Die("TCP_NODELAY");
}

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) Die("not an IPv4 address: " + host);
  return address;
}

class SocketClient : public Client {
 public:
  SocketClient(const std::string& host, int port)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), memory_(kLargeBytes, 1) {
    const sockaddr_in address = AddressOf(host, port);
    if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Die("connect");
    SetNoDelay(fd_.get());
  }

  void Send(size_t bytes) override {
    if (!TrySend(bytes)) Die("send");
  }
  void WaitForAnswers(int64_t outstanding) override {
    while (unanswered_ > outstanding) {
      if (!ReadAnswer()) Die("read");
    }
  }
  std::string WaitForEnd(bool sending) override {
    if (!sending) ++unanswered_;  // reads until the end
    bool alive = true;
    while (alive && sending) alive = TrySend(kLargeBytes) && (unanswered_ <= kOutstanding || ReadAnswer());
    while (alive) alive = ReadAnswer();
    return std::strerror(errno);
  }

 private:
  bool TrySend(size_t bytes) {
    ++unanswered_;
    const uint64_t size = bytes;
    return WriteAll(fd_.get(), &size, sizeof(size)) && WriteAll(fd_.get(), memory_.data(), bytes);
  }
  bool ReadAnswer() {
    --unanswered_;
    char answer;
    return ReadAll(fd_.get(), &answer, 1);
  }

  const UniqueFd fd_;
  const std::vector<char> memory_;
  int64_t unanswered_ = 0;
};

void AnswerMessages(const UniqueFd& fd) {
  SetNoDelay(fd.get());
  std::vector<char> memory(kLargeBytes, 1);
  uint64_t size = 0;
  while (ReadAll(fd.get(), &size, sizeof(size)) && size <= memory.size() && ReadAll(fd.get(), memory.data(), size)) {
    if (!WriteAll(fd.get(), "a", 1)) return;
  }
}

[[noreturn]] void ServeSockets(int port) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = AddressOf("0.0.0.0", port);
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Die("bind");
  if (listen(listener.get(), 16) != 0) Die("listen");
  std::puts("ready");
  std::fflush(stdout);
  while (true) {
    UniqueFd fd(accept(listener.get(), nullptr, nullptr));
    if (!fd.valid()) Die("accept");
    std::thread([fd = std::move(fd)] { AnswerMessages(fd); }).detach();
  }
}

// Measuring ----------------------------------------------------------------------------------------------------------

// Median.
double RoundTripSeconds(Client& client, double seconds) {
  std::vector<double> times;
  for (const double end = Now() + seconds; Now() < end;) {
    const double start = Now();
    client.Send(kSmallBytes);
    client.WaitForAnswers(0);
    times.push_back(Now() - start);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// The first message is not counted: TCP finds out how much the path takes.
double BytesPerSecond(Client& client, double seconds) {
  client.Send(kLargeBytes);
  client.WaitForAnswers(0);
  const double start = Now();
  int64_t messages = 0;
  for (; Now() < start + seconds; ++messages) {
    client.Send(kLargeBytes);
    client.WaitForAnswers(kOutstanding);
  }
  client.WaitForAnswers(0);
  return static_cast<double>(messages) * kLargeBytes / (Now() - start);
}

std::unique_ptr<Client> Connect(const std::string& kind, const std::string& host, int port) {
  std::unique_ptr<Client> client;
  if (kind == "transport") {
    client = std::make_unique<TransportClient>(absl::StrCat(host, ":", port));
  } else {
    client = std::make_unique<SocketClient>(host, port + 1);
  }
  client->Send(kSmallBytes);
  client->WaitForAnswers(0);
  return client;
}

int Run(int argc, char** argv) {
  std::string kind, host;
  int port = 29200;
  double seconds = 2;
  bool sending = false;
  CLI::App app("Measures the transport beside a bare TCP stream");
  app.require_subcommand(1);
  CLI::App* serve = app.add_subcommand("serve", "answers all messages");
  CLI::App* measure = app.add_subcommand("measure", "throughput and round trip");
  CLI::App* watch = app.add_subcommand("watch", "waits until the connection breaks");
  for (CLI::App* command : {serve, measure, watch}) command->add_option("--port", port)->check(CLI::Range(1, 65534));
  for (CLI::App* command : {measure, watch}) {
    command->add_option("kind", kind)->required()->check(CLI::IsMember({"transport", "socket"}));
    command->add_option("host", host, "IPv4 address")->required();
  }
  measure->add_option("--seconds", seconds, "for the throughput; half of it for the round trip")
      ->check(CLI::PositiveNumber);
  watch->add_flag("--sending", sending, "keeps sending large messages");
  CLI11_PARSE(app, argc, argv);

  if (serve->parsed()) {
    const std::unique_ptr<Transport> transport = ServeTransport(port);
    ServeSockets(port + 1);
  }
  const std::unique_ptr<Client> client = Connect(kind, host, port);
  nlohmann::json result;
  if (measure->parsed()) {
    result["round_trip_seconds"] = RoundTripSeconds(*client, seconds / 2);
    result["bytes_per_second"] = BytesPerSecond(*client, seconds);
  } else {
    std::puts("connected");
    std::fflush(stdout);
    result["why"] = client->WaitForEnd(sending);
    result["at"] = Now();
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace openpathways::transport

int main(int argc, char** argv) { return openpathways::transport::Run(argc, argv); }
