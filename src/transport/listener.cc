#include "transport/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "spdlog/spdlog.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace openpathways::transport {
namespace {

constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
constexpr absl::Duration kRetryDelay = absl::Milliseconds(100);
constexpr int kAcceptsPerTurn = 64;

}  // namespace

absl::Status Listener::Start() {
  ASSIGN_OR_RETURN(watch_, loop_.Watch(fd_.get(), shared_from_this()));
  return absl::OkStatus();
}

void Listener::Stop() {
  if (watch_ != 0) loop_.Unwatch(fd_.get(), std::exchange(watch_, 0));
  fd_.reset();
}

void Listener::OnEvents(uint32_t events) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (!fd_.valid()) return;
    UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      short_of_resources_ = false;
      Admit(std::move(fd));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return RetryLater(errno);
    // Anything else concerns a connection that broke before it was accepted.
  }
  loop_.Again(watch_, EPOLLIN);
}

// The connections wait in the backlog. Events are edge-triggered, so nothing spins meanwhile.
void Listener::RetryLater(int error) {
  if (!std::exchange(short_of_resources_, true)) {
    spdlog::error("cannot accept connections: {}; trying again until it works", std::strerror(error));
  }
  loop_.After(kRetryDelay, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->OnEvents(EPOLLIN);
  });
}

void Listener::Admit(UniqueFd fd) {
  // Unix sockets of ours are known to nobody else.
  if (IsUnixSocket(fd.get())) return OnFirstBytes(std::move(fd), Speaker::kTransport);
  AwaitFirstBytes(loop_, std::move(fd), kHandshakeTimeout, [weak = weak_from_this()](UniqueFd fd, Speaker speaker) {
    if (auto self = weak.lock()) self->OnFirstBytes(std::move(fd), speaker);
  });
}

void Listener::OnFirstBytes(UniqueFd fd, Speaker speaker) {
  std::string peer = PeerName(fd.get());
  if (speaker == Speaker::kHttp2 && http2_) return http2_(fd.release());
  if (speaker != Speaker::kTransport) {
    spdlog::debug("a connection from {} that does not speak this protocol is closed", peer);
    return;
  }
  StartHandshake(loop_, std::move(fd), kHandshakeTimeout,
                 [weak = weak_from_this(), peer = std::move(peer)](absl::StatusOr<UniqueFd> fd) mutable {
                   if (!fd.ok()) {
                     spdlog::warn("refused a connection from {}: {}", peer, std::string(fd.status().message()));
                   } else if (auto self = weak.lock()) {
                     self->accepted_(*std::move(fd), std::move(peer));
                   }
                 });
}

}  // namespace openpathways::transport
