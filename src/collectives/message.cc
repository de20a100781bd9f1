#include "collectives/message.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace openpathways::collectives {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as they lie in memory");

constexpr uint32_t kMagic = 0x31434350;
constexpr uint32_t kData = 1;
constexpr uint32_t kAbort = 2;

struct Wire {
  uint32_t magic = kMagic;
  uint32_t type = 0;
  uint64_t controller = 0;
  uint64_t launch = 0;
  uint64_t repetition = 0;
  int32_t instruction = 0;
  uint32_t group = 0;
  uint32_t step = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Wire) == 48);

std::string Encode(const Wire& wire, absl::string_view tail) {
  std::string header;
  header.reserve(sizeof(wire) + tail.size());
  header.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
  header.append(tail.data(), tail.size());
  return header;
}

}  // namespace

std::string EncodeData(const LaunchKey& launch, const CollectiveId& collective, uint32_t step, absl::string_view tail) {
  Wire wire{.type = kData, .controller = launch.controller, .launch = launch.launch};
  wire.repetition = collective.repetition;
  wire.instruction = collective.instruction;
  wire.group = collective.group;
  wire.step = step;
  return Encode(wire, tail);
}

std::string EncodeAbort(const LaunchKey& launch, const absl::Status& status) {
  Wire wire{.type = kAbort, .controller = launch.controller, .launch = launch.launch};
  return Encode(wire, StatusToProto(status).SerializeAsString());
}

absl::StatusOr<Message> DecodeHeader(absl::string_view header) {
  Wire wire;
  if (header.size() < sizeof(wire)) {
    return absl::InvalidArgumentError(absl::StrCat("collective message of ", header.size(), " bytes is too short"));
  }
  std::memcpy(&wire, header.data(), sizeof(wire));
  if (wire.magic != kMagic || (wire.type != kData && wire.type != kAbort)) {
    return absl::InvalidArgumentError("collective message of another version");
  }
  Message message;
  message.launch = {.controller = wire.controller, .launch = wire.launch};
  message.collective = {.instruction = wire.instruction, .group = wire.group, .repetition = wire.repetition};
  message.step = wire.step;
  message.tail = header.substr(sizeof(wire));
  if (wire.type == kAbort) {
    message.is_abort = true;
    base::StatusProto proto;
    if (!proto.ParseFromArray(message.tail.data(), static_cast<int>(message.tail.size())) || proto.code() == 0) {
      return absl::InvalidArgumentError("abort message without a status");
    }
    message.abort_status = StatusFromProto(proto);
  }
  return message;
}

}  // namespace openpathways::collectives
