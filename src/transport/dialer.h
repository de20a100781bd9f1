// Makes an outgoing connection: resolves the name, tries the Unix socket of this host and then TCP, exchanges hellos.
#ifndef OPENPATHWAYS_TRANSPORT_DIALER_H_
#define OPENPATHWAYS_TRANSPORT_DIALER_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "transport/event_loop.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

struct DialedSocket {
  UniqueFd fd;
  std::string peer;  // "10.0.0.3:29005" or "unix:29005"
};

// To be called on the loop's thread; `done` runs there too, and not before this call returns, with the socket or with
// UNAVAILABLE (INVALID_ARGUMENT for a malformed address) saying what was tried. Dropped without `done` if the loop
// ends.
void Dial(std::shared_ptr<EventLoop> loop, std::string address, bool try_unix,
          absl::AnyInvocable<void(absl::StatusOr<DialedSocket>)> done);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_DIALER_H_
