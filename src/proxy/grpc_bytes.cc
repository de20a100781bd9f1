#include "proxy/grpc_bytes.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace openpathways::proxy {
namespace {

using google::protobuf::io::CodedInputStream;

constexpr uint32_t kDataTag = (1 << 3) | 2;  // field 1, length-delimited

// Smaller pieces are sent to workers by value.
constexpr size_t kMinArenaBytes = 4096;

bool SkipField(CodedInputStream& input, uint32_t tag) {
  uint64_t varint;
  uint32_t length;
  switch (tag & 7) {
    case 0:
      return input.ReadVarint64(&varint);
    case 1:
      return input.Skip(8);
    case 2:
      return input.ReadVarint32(&length) && length <= INT32_MAX && input.Skip(static_cast<int>(length));
    case 5:
      return input.Skip(4);
    default:
      return false;
  }
}

}  // namespace

// Not through std::vector or std::string, which would fill the memory first.
absl::StatusOr<transport::Buffer> AllocatePiece(size_t size, transport::Arena* memory) {
  if (size == 0) return transport::Buffer();
  if (memory != nullptr && size >= kMinArenaBytes) {
    if (absl::StatusOr<transport::Buffer> buffer = memory->Allocate(size); buffer.ok()) return buffer;
  }
  std::shared_ptr<void> owner(std::malloc(size), std::free);
  std::byte* data = static_cast<std::byte*>(owner.get());
  if (data == nullptr) return absl::ResourceExhaustedError("There is no memory for a piece of a host buffer");
  return transport::Buffer(std::move(owner), data, size);
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

bool ParseMessage(grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  grpc::ProtoBufferReader reader(&bytes);
  return reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
}

grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<transport::Buffer> ParseDataMessage(grpc::ByteBuffer& bytes, transport::Arena* memory) {
  const absl::Status malformed = absl::InvalidArgumentError("The bytes are no message with a data field");
  grpc::ProtoBufferReader reader(&bytes);
  if (!reader.status().ok()) return malformed;
  CodedInputStream input(&reader);
  input.SetTotalBytesLimit(std::numeric_limits<int>::max());
  transport::Buffer data;
  while (const uint32_t tag = input.ReadTag()) {
    if (tag != kDataTag) {
      if (!SkipField(input, tag)) return malformed;
      continue;
    }
    uint32_t length;
    // The length is believed only as far as there are bytes behind it.
    if (!input.ReadVarint32(&length) || length > bytes.Length()) return malformed;
    ASSIGN_OR_RETURN(data, AllocatePiece(length, memory));
    if (length > 0 && !input.ReadRaw(data.data(), static_cast<int>(length))) return malformed;
  }
  if (!input.ConsumedEntireMessage()) return malformed;
  return data;
}

grpc::ByteBuffer SerializeDataMessage(const transport::Buffer& data) {
  if (data.empty()) return grpc::ByteBuffer(nullptr, 0);
  uint8_t header[1 + 10];
  header[0] = kDataTag;
  const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(data.size(), header + 1);
  grpc::Slice slices[2] = {
      grpc::Slice(header, end - header),
      // Lives as long as gRPC needs it, and keeps the bytes alive.
      grpc::Slice(
          data.data(), data.size(), [](void* owner) { delete static_cast<transport::Buffer*>(owner); },
          new transport::Buffer(data)),
  };
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace openpathways::proxy
