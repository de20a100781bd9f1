#include "proxy/user_context.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace openpathways::proxy {
namespace {
constexpr char kPayloadKey[] = "type.googleapis.com/ifrt.UserContext";
}  // namespace

void DestroyedContexts::Add(uint64_t id) {
  absl::MutexLock lock(&mu_);
  ids_.push_back(id);
}

std::vector<uint64_t> DestroyedContexts::TakeAll() {
  absl::MutexLock lock(&mu_);
  return std::exchange(ids_, {});
}

absl::Status AttachUserContext(absl::Status status, const UserContextRef& context) {
  if (status.ok() || context == nullptr || status.GetPayload(kPayloadKey).has_value()) return status;
  status.SetPayload(kPayloadKey, absl::Cord(absl::StrCat(context->id())));
  return status;
}

}  // namespace openpathways::proxy
