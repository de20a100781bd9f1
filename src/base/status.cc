#include "base/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace openpathways {

base::StatusProto StatusToProto(const absl::Status& status) {
  base::StatusProto proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    (*proto.mutable_payload())[std::string(type_url)] = std::string(payload);
  });
  return proto;
}

absl::Status StatusFromProto(const base::StatusProto& proto) {
  absl::Status status(static_cast<absl::StatusCode>(proto.code()), proto.message());
  for (const auto& [type_url, payload] : proto.payload()) status.SetPayload(type_url, absl::Cord(payload));
  return status;
}

absl::Status AnnotateStatus(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view type_url, const absl::Cord& payload) { annotated.SetPayload(type_url, payload); });
  return annotated;
}

}  // namespace openpathways
