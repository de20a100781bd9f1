// Latency of a small round trip and bandwidth of 16 MiB payloads, over shared memory and over TCP on the loopback
// device. Both ends are in this process, each with its own I/O thread.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "transport/transport.h"

namespace openpathways::transport {
namespace {

// A counter that a thread can wait for.
class Progress {
 public:
  void Add() {
    std::lock_guard<std::mutex> lock(mu_);
    ++count_;
    changed_.notify_all();
  }
  void WaitFor(int64_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int64_t count_ = 0;
};

// A client connected to a server that answers each message with an empty-payload message of the same header.
class EchoPair {
 public:
  explicit EchoPair(bool shared_memory) {
    const TransportOptions options{.shared_memory = shared_memory};
    server_ = Transport::Create(options).value();
    client_ = Transport::Create(options).value();
    const int port = server_
                         ->Listen(0,
                                  [](ConnectionRef connection) {
                                    ConnectionCallbacks callbacks;
                                    callbacks.on_message = [connection](Message message) {
                                      benchmark::DoNotOptimize(message.payload.data());
                                      connection->Send(std::move(message.header));
                                    };
                                    return callbacks;
                                  })
                         .value();
    ConnectionCallbacks callbacks;
    callbacks.on_message = [this](Message) { answers_.Add(); };
    connection_ = client_->Connect(absl::StrCat("127.0.0.1:", port), std::move(callbacks));
    RoundTrip(Buffer());
  }

  void Send(Buffer payload) {
    ++sent_;
    connection_->Send("header", std::move(payload));
  }
  void WaitForAnswers(int64_t outstanding = 0) { answers_.WaitFor(sent_ - outstanding); }
  void RoundTrip(Buffer payload) {
    Send(std::move(payload));
    WaitForAnswers();
  }
  Arena& arena() { return client_->arena(); }

 private:
  Progress answers_;
  int64_t sent_ = 0;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
  ConnectionRef connection_;
};

void SmallRoundTrip(benchmark::State& state, bool shared_memory) {
  EchoPair pair(shared_memory);
  for (auto _ : state) pair.RoundTrip(Buffer());
}

// Each payload is allocated anew, and filled if `fill`, as a worker does with the results of a program.
void Bandwidth(benchmark::State& state, bool shared_memory, bool fill) {
  constexpr size_t kBytes = size_t{16} << 20;
  constexpr int kOutstanding = 4;
  EchoPair pair(shared_memory);
  for (auto _ : state) {
    Buffer payload = pair.arena().Allocate(kBytes).value();
    if (fill) std::memset(payload.data(), 1, kBytes);
    pair.Send(std::move(payload));
    pair.WaitForAnswers(kOutstanding);
  }
  pair.WaitForAnswers();
  state.SetBytesProcessed(state.iterations() * kBytes);
}

BENCHMARK_CAPTURE(SmallRoundTrip, SharedMemory, true)->UseRealTime();
BENCHMARK_CAPTURE(SmallRoundTrip, Tcp, false)->UseRealTime();
BENCHMARK_CAPTURE(Bandwidth, SharedMemory, true, false)->UseRealTime();
BENCHMARK_CAPTURE(Bandwidth, SharedMemoryFilled, true, true)->UseRealTime();
BENCHMARK_CAPTURE(Bandwidth, Tcp, false, false)->UseRealTime();
BENCHMARK_CAPTURE(Bandwidth, TcpFilled, false, true)->UseRealTime();

}  // namespace
}  // namespace openpathways::transport

BENCHMARK_MAIN();
