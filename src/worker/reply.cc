#include "worker/reply.h"

#include <utility>

#include "base/status.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

void SendReply(const transport::ConnectionRef& connection, uint64_t request, const absl::Status& status, int64_t size,
               transport::Buffer payload) {
  Event event;
  Reply& reply = *event.mutable_reply();
  reply.set_request(request);
  if (!status.ok()) *reply.mutable_status() = StatusToProto(status);
  reply.set_size(size);
  connection->Send(event.SerializeAsString(), std::move(payload));
}

void SendCompletion(const transport::ConnectionRef& connection, uint64_t request, const absl::Status& status,
                    int64_t device_nanos) {
  Event event;
  Reply& reply = *event.mutable_reply();
  reply.set_request(request);
  if (!status.ok()) *reply.mutable_status() = StatusToProto(status);
  reply.set_device_nanos(device_nanos);
  connection->Send(event.SerializeAsString());
}

}  // namespace openpathways::worker
