#include "transport/handshake.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/frame.h"
#include "transport/socket.h"

namespace openpathways::transport {
namespace {

class Handshake final : public EventHandler, public std::enable_shared_from_this<Handshake> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<UniqueFd>)>;

  Handshake(EventLoop& loop, UniqueFd fd, Done done) : loop_(loop), fd_(std::move(fd)), done_(std::move(done)) {}

  void Start(absl::Duration timeout) {
    absl::Status started = TryStart();
    if (!started.ok()) {
      // Never from within the caller.
      loop_.Post([self = shared_from_this(), started] { self->Finish(started); });
      return;
    }
    if (timeout == absl::InfiniteDuration()) return;
    loop_.After(timeout, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Finish(absl::UnavailableError("no answer: the peer sent no hello in time"));
    });
  }

  void OnEvents(uint32_t events) override {
    while (received_ < kHelloSize) {
      const ssize_t n = recv(fd_.get(), hello_ + received_, kHelloSize - received_, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0) return Finish(absl::UnavailableError(std::strerror(errno)));
      if (n == 0) {
        return Finish(absl::UnavailableError(
            absl::StrCat("the peer closed the connection after ", received_, " bytes, before its hello was complete")));
      }
      received_ += n;
      absl::Status status = CheckHello(absl::string_view(hello_, received_));
      if (!status.ok()) return Finish(status);
    }
    Finish(absl::OkStatus());
  }

 private:
  absl::Status TryStart() {
    RETURN_IF_ERROR(PrepareConnected(fd_.get()));
    char hello[kHelloSize];
    EncodeHello(hello);
    // The buffer of a new socket always takes these few bytes at once.
    const ssize_t sent = send(fd_.get(), hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(sizeof(hello))) {
      return absl::UnavailableError(absl::StrCat("cannot send the hello: ", std::strerror(errno)));
    }
    ASSIGN_OR_RETURN(watch_, loop_.Watch(fd_.get(), shared_from_this()));
    return absl::OkStatus();
  }

  void Finish(absl::Status status) {
    if (done_ == nullptr) return;
    Done done = std::exchange(done_, nullptr);
    if (watch_ != 0) loop_.Unwatch(fd_.get(), watch_);
    if (status.ok()) {
      done(std::move(fd_));
    } else {
      fd_.reset();
      done(status);
    }
  }

  EventLoop& loop_;
  UniqueFd fd_;
  Done done_;
  EventLoop::WatchId watch_ = 0;
  char hello_[kHelloSize];
  size_t received_ = 0;
};

}  // namespace

void StartHandshake(EventLoop& loop, UniqueFd fd, absl::Duration timeout,
                    absl::AnyInvocable<void(absl::StatusOr<UniqueFd>)> done) {
  std::make_shared<Handshake>(loop, std::move(fd), std::move(done))->Start(timeout);
}

}  // namespace openpathways::transport
