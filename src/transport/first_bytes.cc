#include "transport/first_bytes.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "spdlog/spdlog.h"
#include "transport/frame.h"

namespace openpathways::transport {
namespace {

// RFC 9113, 3.4.
constexpr absl::string_view kHttp2Preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

class FirstBytes final : public EventHandler, public std::enable_shared_from_this<FirstBytes> {
 public:
  using Done = absl::AnyInvocable<void(UniqueFd, Speaker)>;

  FirstBytes(EventLoop& loop, UniqueFd fd, Done done) : loop_(loop), fd_(std::move(fd)), done_(std::move(done)) {}

  void Start(absl::Duration timeout) {
    absl::StatusOr<EventLoop::WatchId> watch = loop_.Watch(fd_.get(), shared_from_this());
    if (!watch.ok()) {
      spdlog::error("cannot take a connection: {}", std::string(watch.status().message()));
      return;  // closes it
    }
    watch_ = *watch;
    loop_.After(timeout, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Finish(Speaker::kOther);
    });
  }

  void OnEvents(uint32_t events) override {
    char bytes[kHttp2Preface.size()];
    const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n <= 0) return Finish(Speaker::kOther);
    Speaker speaker = SpeakerFrom(absl::string_view(bytes, n));
    const bool nothing_more_comes = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (speaker == Speaker::kUndecided && nothing_more_comes) speaker = Speaker::kOther;
    if (speaker != Speaker::kUndecided) Finish(speaker);
  }

 private:
  void Finish(Speaker speaker) {
    if (done_ == nullptr) return;
    Done done = std::exchange(done_, nullptr);
    loop_.Unwatch(fd_.get(), watch_);
    done(std::move(fd_), speaker);
  }

  EventLoop& loop_;
  UniqueFd fd_;
  Done done_;
  EventLoop::WatchId watch_ = 0;
};

// Both start alike as far as the shorter one goes.
bool Agree(absl::string_view a, absl::string_view b) { return absl::StartsWith(a, b) || absl::StartsWith(b, a); }

}  // namespace

Speaker SpeakerFrom(absl::string_view first_bytes) {
  if (first_bytes.empty()) return Speaker::kUndecided;
  // The handshake tells versions apart.
  if (!absl::IsInvalidArgument(CheckHello(first_bytes.substr(0, kHelloSize)))) return Speaker::kTransport;
  if (!Agree(first_bytes, kHttp2Preface)) return Speaker::kOther;
  return first_bytes.size() < kHttp2Preface.size() ? Speaker::kUndecided : Speaker::kHttp2;
}

void AwaitFirstBytes(EventLoop& loop, UniqueFd fd, absl::Duration timeout,
                     absl::AnyInvocable<void(UniqueFd, Speaker)> done) {
  std::make_shared<FirstBytes>(loop, std::move(fd), std::move(done))->Start(timeout);
}

}  // namespace openpathways::transport
