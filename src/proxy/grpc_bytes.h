// Messages as gRPC carries them. The calls that move bulk data work on gRPC's own buffers, so that bytes are copied
// once on their way in and not at all on their way out.
#ifndef OPENPATHWAYS_PROXY_GRPC_BYTES_H_
#define OPENPATHWAYS_PROXY_GRPC_BYTES_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"
#include "transport/buffer.h"

namespace openpathways::proxy {

grpc::Status ToGrpc(const absl::Status& status);

// False if the bytes are no message of this type; what was understood is in `message` all the same.
bool ParseMessage(grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message);
grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message);

// Memory for a piece of a host buffer: from `memory` if the piece is big enough for that to pay and there is room, else
// ordinary memory. Contents are undefined. `memory` may be null.
absl::StatusOr<transport::Buffer> AllocatePiece(size_t size, transport::Arena* memory);

// A message with one field, `bytes data = 1`: GrpcHostBufferStoreRequest, GrpcHostBufferLookupResponse.
// The bytes are copied into memory from AllocatePiece.
absl::StatusOr<transport::Buffer> ParseDataMessage(grpc::ByteBuffer& bytes, transport::Arena* memory);
grpc::ByteBuffer SerializeDataMessage(const transport::Buffer& data);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_GRPC_BYTES_H_
