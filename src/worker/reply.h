// Replies to a controller's requests.
#ifndef OPENPATHWAYS_WORKER_REPLY_H_
#define OPENPATHWAYS_WORKER_REPLY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace openpathways::worker {

// Any thread. `size` and `payload` are those of a ReadBuffer.
void SendReply(const transport::ConnectionRef& connection, uint64_t request, const absl::Status& status,
               int64_t size = 0, transport::Buffer payload = transport::Buffer());

// Of an Execute. Any thread.
void SendCompletion(const transport::ConnectionRef& connection, uint64_t request, const absl::Status& status,
                    int64_t device_nanos);

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_REPLY_H_
