// What a new connection speaks, from its first bytes, which stay unread.
#ifndef OPENPATHWAYS_TRANSPORT_FIRST_BYTES_H_
#define OPENPATHWAYS_TRANSPORT_FIRST_BYTES_H_

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "transport/event_loop.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

enum class Speaker {
  kUndecided,  // more bytes are needed
  kTransport,  // this protocol, of whatever version
  kHttp2,
  kOther,  // something else, or a connection that ended or stayed silent
};

Speaker SpeakerFrom(absl::string_view first_bytes);

// Calls `done`, on the loop's thread and not before this call returns, once it is decided, after `timeout` at the
// latest. To be called on the loop's thread. Dropped without `done` if the loop ends before.
void AwaitFirstBytes(EventLoop& loop, UniqueFd fd, absl::Duration timeout,
                     absl::AnyInvocable<void(UniqueFd, Speaker)> done);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_FIRST_BYTES_H_
