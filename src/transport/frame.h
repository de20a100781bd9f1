// What is on the wire. All integers are little-endian.
//
//   stream  = hello frame*                      each side sends its hello first and reads the other's before anything
//   else hello   = magic[8] version:u32 size:u32 reserved:u64 frame   = prefix header-bytes inline-payload-bytes prefix
//   = 48 bytes, FramePrefix below
//
// Types of frames
//   kMessage        a message. Its payload is absent, inline (follows the header), or shared: `payload_size` bytes at
//                   `offset` of `segment`, lent to the receiver under the number `loan`.
//   kSegment        introduces `segment`, of `payload_size` bytes, before its first use. Its memory file comes along as
//                   an SCM_RIGHTS descriptor. Unix sockets only.
//   kRelease        the receiver of loan `loan` no longer reads it.
//   kForgetSegment  `segment` is no longer used; the number is never given again.
//   kGoodbye        the sender of this has closed the connection: no message follows, only releases.
//
// A side closes its socket only when it neither reads lent memory nor has lent any, or when the other side is gone. So
// an end of stream always means that loans to the other side are over, and memory is never reused while it is being
// read.
#ifndef OPENPATHWAYS_TRANSPORT_FRAME_H_
#define OPENPATHWAYS_TRANSPORT_FRAME_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace openpathways::transport {

static_assert(std::endian::native == std::endian::little, "the wire format is written by memcpy");

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kHelloSize = 24;
inline constexpr uint32_t kFrameMagic = 0x3157504f;  // "OPW1"
inline constexpr uint32_t kMaxHeaderSize = uint32_t{64} << 20;
inline constexpr uint64_t kMaxPayloadSize = uint64_t{256} << 30;
// Payloads below this go inline even if they could be shared: copying them costs less than a release message.
inline constexpr size_t kMinSharedPayload = 4096;

enum class FrameType : uint8_t { kMessage = 1, kSegment = 2, kRelease = 3, kForgetSegment = 4, kGoodbye = 5 };
enum class PayloadPlace : uint8_t { kNone = 0, kInline = 1, kShared = 2 };

struct FramePrefix {
  uint32_t magic = kFrameMagic;
  FrameType type = FrameType::kMessage;
  PayloadPlace place = PayloadPlace::kNone;
  uint16_t reserved = 0;
  uint32_t header_size = 0;
  uint32_t reserved2 = 0;
  uint64_t payload_size = 0;
  uint64_t segment = 0;
  uint64_t offset = 0;
  uint64_t loan = 0;
};
static_assert(sizeof(FramePrefix) == 48);

void EncodeHello(char (&out)[kHelloSize]);

// Checks the first bytes of a stream, as many as have come. INVALID_ARGUMENT as soon as they cannot become a hello of
// this protocol; FAILED_PRECONDITION, naming both versions, for another version of it.
absl::Status CheckHello(absl::string_view bytes);

// INVALID_ARGUMENT if no correct peer sends this prefix. `unix_socket`: frames about shared memory are allowed.
absl::Status CheckPrefix(const FramePrefix& prefix, bool unix_socket);

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_FRAME_H_
