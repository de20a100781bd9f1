#include "transport/transport.h"

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "spdlog/spdlog.h"
#include "transport/connection.h"
#include "transport/dialer.h"
#include "transport/handshake.h"
#include "transport/listener.h"
#include "transport/socket.h"

namespace openpathways::transport {
namespace {

constexpr absl::Duration kDrainTime = absl::Seconds(1);
constexpr int kFreePortAttempts = 16;

struct ListeningSockets {
  int port = 0;
  UniqueFd tcp;
  UniqueFd unix_socket;  // unless memory is not shared
};

absl::StatusOr<ListeningSockets> ListenOnce(int port, bool shared_memory) {
  ListeningSockets sockets;
  ASSIGN_OR_RETURN(sockets.tcp, ListenTcp(port));
  ASSIGN_OR_RETURN(sockets.port, BoundPort(sockets.tcp.get()));
  if (shared_memory) {
    ASSIGN_OR_RETURN(sockets.unix_socket, ListenUnix(sockets.port));
  }
  return sockets;
}

absl::StatusOr<ListeningSockets> ListenBoth(int port, bool shared_memory) {
  absl::StatusOr<ListeningSockets> sockets = ListenOnce(port, shared_memory);
  // The free port that the kernel chose may have a taken Unix socket, e.g. of a process that is just ending.
  for (int i = 0; port == 0 && absl::IsAlreadyExists(sockets.status()) && i < kFreePortAttempts; ++i) {
    sockets = ListenOnce(port, shared_memory);
  }
  return sockets;
}

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(std::shared_ptr<IoContext> io) : io_(std::move(io)) {}
  ~SocketTransport() override;

  absl::StatusOr<int> Listen(int port, AcceptCallback accept, Http2Callback http2) override;
  ConnectionRef Connect(absl::string_view address, ConnectionCallbacks callbacks) override;
  ConnectionRef Adopt(int fd, ConnectionCallbacks callbacks) override;
  void Post(absl::AnyInvocable<void()> task) override { RunOnLoop(std::move(task)); }
  Arena& arena() override { return *io_->arena; }

 private:
  // Runs `task`; only a thread that uses a Transport which is being destroyed can find the loop ended.
  void RunOnLoop(EventLoop::Task task) { io_->loop->Post(std::move(task)); }

  const std::shared_ptr<IoContext> io_;
  std::shared_ptr<std::vector<std::shared_ptr<Listener>>> listeners_ =
      std::make_shared<std::vector<std::shared_ptr<Listener>>>();  // only the I/O thread looks inside
};

SocketTransport::~SocketTransport() {
  RunOnLoop([io = io_, listeners = listeners_] {
    for (const auto& listener : *listeners) listener->Stop();
    listeners->clear();
    io->draining = true;
    if (io->connections.empty()) return io->loop->Stop();
    const auto connections = io->connections;  // changes meanwhile
    for (const auto& connection : connections) connection->Drain();
    io->loop->After(kDrainTime, [io] {
      const auto left = io->connections;
      for (const auto& connection : left) connection->Abandon();
      io->loop->Stop();
    });
  });
  io_->loop->Join();
}

absl::StatusOr<int> SocketTransport::Listen(int port, AcceptCallback accept, Http2Callback http2) {
  ASSIGN_OR_RETURN(ListeningSockets sockets, ListenBoth(port, io_->shared_memory));
  auto open = [io = io_, accept = std::make_shared<AcceptCallback>(std::move(accept))](UniqueFd fd, std::string peer) {
    auto connection = std::make_shared<SocketConnection>(io, peer);
    if (!connection->Register({})) return;
    connection->Open(std::move(fd), std::move(peer), *accept);
  };
  std::vector<std::shared_ptr<Listener>> made;
  made.push_back(std::make_shared<Listener>(*io_->loop, std::move(sockets.tcp), open, std::move(http2)));
  if (sockets.unix_socket.valid()) {
    made.push_back(std::make_shared<Listener>(*io_->loop, std::move(sockets.unix_socket), open));
  }
  RunOnLoop([listeners = listeners_, made = std::move(made)] {
    for (const auto& listener : made) {
      if (absl::Status status = listener->Start(); !status.ok()) {
        spdlog::error("cannot accept connections: {}", std::string(status.message()));
      }
      listeners->push_back(listener);
    }
  });
  return sockets.port;
}

ConnectionRef SocketTransport::Connect(absl::string_view address, ConnectionCallbacks callbacks) {
  auto connection = std::make_shared<SocketConnection>(io_, std::string(address));
  RunOnLoop([io = io_, connection, address = std::string(address), callbacks = std::move(callbacks)]() mutable {
    if (!connection->Register(std::move(callbacks))) return;
    Dial(io->loop, address, io->shared_memory, [connection](absl::StatusOr<DialedSocket> dialed) {
      if (!dialed.ok()) return connection->FailToOpen(absl::UnavailableError(dialed.status().message()));
      connection->Open(std::move(dialed->fd), std::move(dialed->peer), nullptr);
    });
  });
  return connection;
}

ConnectionRef SocketTransport::Adopt(int fd, ConnectionCallbacks callbacks) {
  std::string name = absl::StrCat("socket ", fd);
  auto connection = std::make_shared<SocketConnection>(io_, name);
  RunOnLoop([io = io_, connection, owned = UniqueFd(fd), name, callbacks = std::move(callbacks)]() mutable {
    if (!connection->Register(std::move(callbacks))) return;
    // No time limit: the other end may be waiting for its process to start, and its death is seen in any case.
    StartHandshake(*io->loop, std::move(owned), absl::InfiniteDuration(), [connection, name](auto ready) {
      if (!ready.ok()) {
        return connection->FailToOpen(absl::UnavailableError(absl::StrCat(name, ": ", ready.status().message())));
      }
      connection->Open(*std::move(ready), name, nullptr);
    });
  });
  return connection;
}

}  // namespace

bool SharedMemoryByDefault() {
  const char* value = std::getenv("PATHWAYS_SHARED_MEMORY");
  return value == nullptr || absl::string_view(value) != "off";
}

absl::StatusOr<std::unique_ptr<Transport>> Transport::Create(const TransportOptions& options) {
  auto io = std::make_shared<IoContext>();
  ASSIGN_OR_RETURN(io->loop, EventLoop::Create());
  io->arena = SharedArena::Create(options.arena_cache_bytes);
  io->shared_memory = options.shared_memory;
  return std::make_unique<SocketTransport>(std::move(io));
}

}  // namespace openpathways::transport
