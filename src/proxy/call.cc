#include "proxy/call.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace openpathways::proxy {

Call::Call(std::shared_ptr<Session> session, const xla::ifrt::proxy::RequestMetadata& metadata)
    : session_(std::move(session)),
      op_id_(metadata.op_id()),
      context_(metadata.user_context_id() == 0
                   ? nullptr
                   : std::make_shared<UserContext>(metadata.user_context_id(), session_->destroyed_contexts())),
      error_context_(context_) {}

Call::~Call() {
  if (!answered_) Fail(absl::AbortedError("the request was dropped before it was answered"));
}

absl::StatusOr<ArrayEntryRef> Call::FindEntry(uint64_t handle) {
  ASSIGN_OR_RETURN(ArrayEntryRef entry, session_->arrays().Find(handle));
  if (source_context_ == nullptr) source_context_ = entry->context;
  if (!entry->array.ok()) {
    error_context_ = entry->context;
    return entry->array.status();
  }
  return entry;
}

absl::StatusOr<ifrt::ArrayRef> Call::FindArray(uint64_t handle) {
  ASSIGN_OR_RETURN(ArrayEntryRef entry, FindEntry(handle));
  return entry->array;
}

absl::StatusOr<std::vector<ifrt::ArrayRef>> Call::FindArrays(absl::Span<const uint64_t> handles) {
  std::vector<ifrt::ArrayRef> arrays;
  arrays.reserve(handles.size());
  for (uint64_t handle : handles) {
    ASSIGN_OR_RETURN(arrays.emplace_back(), FindArray(handle));
  }
  return arrays;
}

void Call::BindArrays(absl::Span<const uint64_t> handles, std::vector<ifrt::ArrayRef> arrays,
                      const UserContextRef& context) {
  for (size_t i = 0; i < handles.size(); ++i) {
    auto entry = std::make_shared<const ArrayEntry>(ArrayEntry{std::move(arrays[i]), context});
    // Fails only once the session has ended; then nobody will ask.
    session_->arrays().Insert(handles[i], std::move(entry)).IgnoreError();
  }
}

void Call::BindError(absl::Span<const uint64_t> handles, const absl::Status& error) {
  if (handles.empty()) return;
  auto entry = std::make_shared<const ArrayEntry>(ArrayEntry{Blame(error), error_context_});
  for (uint64_t handle : handles) {
    if (handle == 0 || handle >= kFirstServerHandle) continue;
    session_->arrays().Insert(handle, entry).IgnoreError();  // one that is in use keeps its value
  }
}

void Call::Respond(xla::ifrt::proxy::IfrtResponse response, Counting counting, Urgency urgency) {
  if (std::exchange(answered_, true)) return;
  session_->Send(op_id_, absl::OkStatus(), std::move(response), counting, urgency);
}

void Call::Fail(absl::Status error) {
  if (std::exchange(answered_, true)) return;
  session_->Send(op_id_, Blame(std::move(error)), {}, Counting::kNotCounted);
}

absl::Status Call::Blame(absl::Status error) const { return AttachUserContext(std::move(error), error_context_); }

absl::Status CheckNewArrayHandles(Session& session, absl::Span<const uint64_t> handles) {
  absl::flat_hash_set<uint64_t> seen;
  for (uint64_t handle : handles) {
    if (handle == 0 || handle >= kFirstServerHandle) {
      return absl::InvalidArgumentError(
          absl::StrCat("A client cannot choose ", handle, " as a handle: it must be in 1..2^48-1"));
    }
    if (session.arrays().Contains(handle)) {
      return absl::AlreadyExistsError(absl::StrCat("The array handle ", handle, " is in use already"));
    }
    if (handles.size() > 1 && !seen.insert(handle).second) {
      return absl::InvalidArgumentError(absl::StrCat("The array handle ", handle, " was chosen for two results"));
    }
  }
  return absl::OkStatus();
}

void AnswerWithArrays(CallRef call, absl::Span<const uint64_t> handles, xla::ifrt::proxy::IfrtResponse response,
                      absl::FunctionRef<absl::StatusOr<std::vector<ifrt::ArrayRef>>()> make,
                      const UserContextRef& (Call::*context)() const) {
  auto checked_make = [&]() -> absl::StatusOr<std::vector<ifrt::ArrayRef>> {
    RETURN_IF_ERROR(CheckNewArrayHandles(call->session(), handles));
    ASSIGN_OR_RETURN(std::vector<ifrt::ArrayRef> arrays, make());
    if (arrays.size() != handles.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("The request makes ", arrays.size(), " arrays but names ", handles.size(), " result handles"));
    }
    return arrays;
  };
  absl::StatusOr<std::vector<ifrt::ArrayRef>> arrays = checked_make();
  if (!arrays.ok()) {
    call->BindError(handles, arrays.status());
    call->Fail(arrays.status());
    return;
  }
  call->BindArrays(handles, *std::move(arrays), (*call.*context)());
  call->Respond(std::move(response));
}

}  // namespace openpathways::proxy
