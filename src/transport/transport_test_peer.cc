// The other process of transport_failure_test: transport_test_peer MODE host:port|fd:N
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/transport.h"
#include "transport/transport_testing.h"

namespace openpathways::transport {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

ConnectionRef ConnectOrAdopt(Transport& transport, const std::string& target, ConnectionCallbacks callbacks) {
  if (target.rfind("fd:", 0) == 0) return transport.Adopt(std::stoi(target.substr(3)), std::move(callbacks));
  return transport.Connect(target, std::move(callbacks));
}

// Keeps every payload and says so; or stops reading for ever.
[[noreturn]] void Receive(Transport& transport, const std::string& target, bool block) {
  auto kept = std::make_shared<std::vector<Message>>();
  auto connection = std::make_shared<ConnectionRef>();
  Signal ready;
  ConnectionCallbacks callbacks;
  callbacks.on_message = [&, kept, connection, block](Message message) {
    ready.Await();
    kept->push_back(std::move(message));
    (*connection)->Send(block ? "blocking" : "holding");
    while (block) pause();
  };
  callbacks.on_closed = [](absl::Status) { _exit(0); };
  *connection = ConnectOrAdopt(transport, target, std::move(callbacks));
  ready.Set();
  while (true) pause();
}

[[noreturn]] void LendAndDie(Transport& transport, const std::string& target) {
  ConnectionRef connection = ConnectOrAdopt(transport, target, {});
  for (int i = 0; i < 3; ++i) {
    Buffer payload = transport.arena().Allocate(kMiB).value();
    FillPattern(payload, i);
    connection->Send("lent", std::move(payload));
  }
  // Shared payloads count as queued until they are released: wait for the little that is copied, then for the headers.
  while (!connection->is_shared_memory() && connection->queued_bytes() > 0) sched_yield();
  while (connection->queued_bytes() > 3 * kMiB) sched_yield();
  _exit(0);
}

void SendAndExit(Transport& transport, const std::string& target) {
  ConnectionRef connection = ConnectOrAdopt(transport, target, {});
  for (int i = 0; i < 100; ++i) {
    Buffer payload = transport.arena().Allocate(10'000).value();
    FillPattern(payload, i);
    connection->Send("bye", std::move(payload));
  }
}

int Run(const std::string& mode, const std::string& target) {
  auto transport = Transport::Create().value();
  if (mode == "hold") Receive(*transport, target, /*block=*/false);
  if (mode == "block") Receive(*transport, target, /*block=*/true);
  if (mode == "lend-and-die") LendAndDie(*transport, target);
  if (mode == "send-and-exit") {
    SendAndExit(*transport, target);
    return 0;
  }
  std::fprintf(stderr, "unknown mode %s\n", mode.c_str());
  return 2;
}

}  // namespace
}  // namespace openpathways::transport

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return openpathways::transport::Run(argv[1], argv[2]);
}
