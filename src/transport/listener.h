// Accepts connections on one listening socket and lets those in that pass the handshake.
#ifndef OPENPATHWAYS_TRANSPORT_LISTENER_H_
#define OPENPATHWAYS_TRANSPORT_LISTENER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "transport/event_loop.h"
#include "transport/first_bytes.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

class Listener final : public EventHandler, public std::enable_shared_from_this<Listener> {
 public:
  // Receives each socket that has passed the handshake, and the peer's name.
  using AcceptedCallback = std::function<void(UniqueFd, std::string)>;

  // Receives each socket that speaks HTTP/2.
  using Http2Callback = std::function<void(int fd)>;

  // `fd` listens already. `loop` must outlive the listener.
  Listener(EventLoop& loop, UniqueFd fd, AcceptedCallback accepted, Http2Callback http2 = nullptr)
      : loop_(loop), fd_(std::move(fd)), accepted_(std::move(accepted)), http2_(std::move(http2)) {}

  // On the loop's thread. The loop keeps the listener from then on.
  absl::Status Start();
  // On the loop's thread: no more connections.
  void Stop();

  void OnEvents(uint32_t events) override;

 private:
  void Admit(UniqueFd fd);
  void OnFirstBytes(UniqueFd fd, Speaker speaker);
  void RetryLater(int error);

  EventLoop& loop_;
  UniqueFd fd_;
  AcceptedCallback accepted_;
  Http2Callback http2_;
  EventLoop::WatchId watch_ = 0;
  bool short_of_resources_ = false;  // logged already
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_LISTENER_H_
