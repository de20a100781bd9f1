#include "transport/frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace openpathways::transport {
namespace {

constexpr char kHelloMagic[8] = {'O', 'P', 'N', 'P', 'A', 'T', 'H', 'W'};
constexpr size_t kVersionOffset = sizeof(kHelloMagic);
constexpr size_t kSizeOffset = kVersionOffset + sizeof(uint32_t);

uint32_t LoadU32(const char* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

bool UsesSharedMemory(const FramePrefix& prefix) {
  return prefix.type == FrameType::kSegment || prefix.type == FrameType::kRelease ||
         prefix.type == FrameType::kForgetSegment || prefix.place == PayloadPlace::kShared;
}

absl::Status CheckMessage(const FramePrefix& prefix) {
  if (prefix.header_size > kMaxHeaderSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("message header of ", prefix.header_size, " bytes; at most ", kMaxHeaderSize, " are allowed"));
  }
  if (prefix.payload_size > kMaxPayloadSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("message payload of ", prefix.payload_size, " bytes; at most ", kMaxPayloadSize, " are allowed"));
  }
  if (prefix.place > PayloadPlace::kShared) {
    return absl::InvalidArgumentError(absl::StrCat("unknown payload place ", static_cast<int>(prefix.place)));
  }
  if ((prefix.place == PayloadPlace::kNone) != (prefix.payload_size == 0)) {
    return absl::InvalidArgumentError("payload size and place do not agree");
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeHello(char (&out)[kHelloSize]) {
  const uint32_t version = kProtocolVersion;
  const uint32_t size = kHelloSize;
  std::memset(out, 0, kHelloSize);
  std::memcpy(out, kHelloMagic, sizeof(kHelloMagic));
  std::memcpy(out + kVersionOffset, &version, sizeof(version));
  std::memcpy(out + kSizeOffset, &size, sizeof(size));
}

absl::Status CheckHello(absl::string_view bytes) {
  const size_t known = std::min(bytes.size(), sizeof(kHelloMagic));
  if (std::memcmp(bytes.data(), kHelloMagic, known) != 0) {
    return absl::InvalidArgumentError("the peer does not speak the OpenPathways transport protocol");
  }
  if (bytes.size() >= kVersionOffset + sizeof(uint32_t)) {
    const uint32_t version = LoadU32(bytes.data() + kVersionOffset);
    if (version != kProtocolVersion) {
      return absl::FailedPreconditionError(absl::StrCat("the peer speaks version ", version,
                                                        " of the transport protocol, this process version ",
                                                        kProtocolVersion, ": all processes must be of one release"));
    }
  }
  if (bytes.size() >= kSizeOffset + sizeof(uint32_t) && LoadU32(bytes.data() + kSizeOffset) != kHelloSize) {
    return absl::InvalidArgumentError("the peer's hello has a wrong size");
  }
  return absl::OkStatus();
}

absl::Status CheckPrefix(const FramePrefix& prefix, bool unix_socket) {
  if (prefix.magic != kFrameMagic || prefix.reserved != 0 || prefix.reserved2 != 0) {
    return absl::InvalidArgumentError("not a frame");
  }
  if (!unix_socket && UsesSharedMemory(prefix)) {
    return absl::InvalidArgumentError("a frame about shared memory on a connection that has none");
  }
  switch (prefix.type) {
    case FrameType::kMessage:
      return CheckMessage(prefix);
    case FrameType::kSegment:
      if (prefix.payload_size == 0) return absl::InvalidArgumentError("an empty segment");
      [[fallthrough]];
    case FrameType::kRelease:
    case FrameType::kForgetSegment:
    case FrameType::kGoodbye:
      if (prefix.header_size != 0 || prefix.place != PayloadPlace::kNone) {
        return absl::InvalidArgumentError("a control frame with a header or payload");
      }
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown frame type ", static_cast<int>(prefix.type)));
}

}  // namespace openpathways::transport
