#include "ifrt/client_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace openpathways::ifrt {

absl::Status ForClient(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInternal && !absl::StrContains(status.message(), "INTERNAL")) return status;
  const absl::StatusCode code =
      status.code() == absl::StatusCode::kInternal ? absl::StatusCode::kUnknown : status.code();
  absl::Status result(code, absl::StrReplaceAll(status.message(), {{"INTERNAL", "internal"}}));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { result.SetPayload(type, payload); });
  return result;
}

}  // namespace openpathways::ifrt
