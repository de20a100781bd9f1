#include "transport/dialer.h"

#include <sys/epoll.h>

#include <deque>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "spdlog/spdlog.h"
#include "transport/address.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace openpathways::transport {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);

// Waits until a socket that is being connected is connected or has failed.
class ConnectWait final : public EventHandler, public std::enable_shared_from_this<ConnectWait> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<UniqueFd>)>;

  ConnectWait(EventLoop& loop, UniqueFd fd, Done done) : loop_(loop), fd_(std::move(fd)), done_(std::move(done)) {}

  void Start() {
    absl::StatusOr<EventLoop::WatchId> watch = loop_.Watch(fd_.get(), shared_from_this());
    if (!watch.ok()) {
      loop_.Post([self = shared_from_this(), status = watch.status()] { self->Finish(status); });
      return;
    }
    watch_ = *watch;
    loop_.SetWantWrite(fd_.get(), watch_, true);
    loop_.After(kConnectTimeout, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Finish(absl::UnavailableError("timed out"));
    });
  }

  void OnEvents(uint32_t events) override {
    if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) Finish(ConnectResult(fd_.get()));
  }

 private:
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
};

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<DialedSocket>)>;

  Dialer(std::shared_ptr<EventLoop> loop, std::string address, bool try_unix, Done done)
      : loop_(std::move(loop)), address_(std::move(address)), try_unix_(try_unix), done_(std::move(done)) {}

  void Start() {
    absl::StatusOr<HostPort> target = ParseHostPort(address_);
    if (!target.ok()) {
      loop_->Post([self = shared_from_this(), status = target.status()] { self->done_(status); });
      return;
    }
    target_ = *target;
    if (IsNumericHost(target_.host)) {
      loop_->Post([self = shared_from_this()] { self->OnResolved(Resolve(self->target_)); });
    } else {
      ResolveOnThread();
    }
  }

 private:
  // A name server may take its time. The thread is on its own: it must hold up neither the I/O thread nor its end.
  void ResolveOnThread() {
    try {
      std::thread([self = shared_from_this()] {
        absl::StatusOr<std::vector<SocketAddress>> found = Resolve(self->target_);
        self->loop_->Post([self, found = std::move(found)]() mutable { self->OnResolved(std::move(found)); });
      }).detach();
    } catch (const std::system_error& error) {
      absl::Status status =
          absl::UnavailableError(absl::StrCat("cannot start a thread to resolve the name: ", error.what()));
      loop_->Post([self = shared_from_this(), status] { self->OnResolved(status); });
    }
  }

  void OnResolved(absl::StatusOr<std::vector<SocketAddress>> found) {
    if (!found.ok()) {
      failures_ = std::string(found.status().message());
      return TryNext();
    }
    bool own = false;
    for (const SocketAddress& address : *found) own = own || IsOwnAddress(address);
    if (own && try_unix_) candidates_.push_back(UnixAddressOfPort(target_.port));
    candidates_.insert(candidates_.end(), found->begin(), found->end());
    TryNext();
  }

  void TryNext() {
    while (!candidates_.empty()) {
      const SocketAddress address = candidates_.front();
      candidates_.pop_front();
      peer_ = address.family() == AF_UNIX ? absl::StrCat("unix:", target_.port) : ToString(address);
      absl::StatusOr<UniqueFd> fd = StartConnect(address);
      if (!fd.ok()) {
        NoteFailure(fd.status());
        continue;
      }
      std::make_shared<ConnectWait>(*loop_, *std::move(fd), [self = shared_from_this()](absl::StatusOr<UniqueFd> fd) {
        self->OnConnected(std::move(fd));
      })->Start();
      return;
    }
    done_(absl::UnavailableError(absl::StrCat("cannot connect to ", address_, ": ", failures_)));
  }

  void OnConnected(absl::StatusOr<UniqueFd> fd) {
    if (!fd.ok()) {
      NoteFailure(fd.status());
      return TryNext();
    }
    StartHandshake(*loop_, *std::move(fd), kHandshakeTimeout, [self = shared_from_this()](absl::StatusOr<UniqueFd> fd) {
      if (!fd.ok()) {
        self->NoteFailure(fd.status());
        return self->TryNext();
      }
      self->done_(DialedSocket{*std::move(fd), self->peer_});
    });
  }

  void NoteFailure(const absl::Status& status) {
    spdlog::debug("cannot connect to {} by {}: {}", address_, peer_, std::string(status.message()));
    absl::StrAppend(&failures_, failures_.empty() ? "" : "; ", peer_, ": ", std::string(status.message()));
  }

  const std::shared_ptr<EventLoop> loop_;
  const std::string address_;
  const bool try_unix_;
  Done done_;
  HostPort target_;
  std::deque<SocketAddress> candidates_;
  std::string peer_;      // the candidate that is being tried
  std::string failures_;  // why the earlier ones failed
};

}  // namespace

void Dial(std::shared_ptr<EventLoop> loop, std::string address, bool try_unix,
          absl::AnyInvocable<void(absl::StatusOr<DialedSocket>)> done) {
  std::make_shared<Dialer>(std::move(loop), std::move(address), try_unix, std::move(done))->Start();
}

}  // namespace openpathways::transport
