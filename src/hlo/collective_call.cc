#include "hlo/collective_call.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"

namespace openpathways::hlo {

std::string EncodeCollective(const CollectiveDescriptor& descriptor) {
  return absl::Base64Escape(descriptor.SerializeAsString());
}

absl::StatusOr<CollectiveDescriptor> DecodeCollective(absl::string_view attribute) {
  std::string bytes;
  CollectiveDescriptor descriptor;
  if (!absl::Base64Unescape(attribute, &bytes) || !descriptor.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("the attribute of a collective call is no CollectiveDescriptor");
  }
  return descriptor;
}

}  // namespace openpathways::hlo
