// The first exchange on a new socket: each side says which protocol and version it speaks. Nobody who fails here, be it
// a port scanner or another release, gets any further.
#ifndef OPENPATHWAYS_TRANSPORT_HANDSHAKE_H_
#define OPENPATHWAYS_TRANSPORT_HANDSHAKE_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "transport/event_loop.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

// Prepares the connected socket `fd`, exchanges hellos and gives the socket back through `done`, on the loop's thread
// and not before this call returns; or tells what went wrong: UNAVAILABLE for a lost connection or a timeout, else see
// CheckHello. To be called on the loop's thread. Dropped without `done` if the loop ends before.
void StartHandshake(EventLoop& loop, UniqueFd fd, absl::Duration timeout,
                    absl::AnyInvocable<void(absl::StatusOr<UniqueFd>)> done);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_HANDSHAKE_H_
