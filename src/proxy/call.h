// One request on its way to its one response.
#ifndef OPENPATHWAYS_PROXY_CALL_H_
#define OPENPATHWAYS_PROXY_CALL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proxy/session.h"

namespace openpathways::proxy {

// Owned by whoever has to answer next. Answers exactly once: one that is dropped unanswered answers with an error.
// Keeps its session, and the user contexts that its answer may name, alive. Used by one thread at a time.
class Call {
 public:
  Call(std::shared_ptr<Session> session, const xla::ifrt::proxy::RequestMetadata& metadata);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Session& session() const { return *session_; }
  ifrt::Backend& backend() const { return session_->backend(); }
  absl::StatusOr<std::shared_ptr<const ifrt::DeviceIds>> device_ids() const { return session_->device_ids(); }
  // Of this request.
  const UserContextRef& context() const { return context_; }

  // The array of a handle. Remembers whom to blame if it is an error.
  absl::StatusOr<ArrayEntryRef> FindEntry(uint64_t handle);
  absl::StatusOr<ifrt::ArrayRef> FindArray(uint64_t handle);
  absl::StatusOr<std::vector<ifrt::ArrayRef>> FindArrays(absl::Span<const uint64_t> handles);
  // The context of the first array that was found: views of an array fail only if that does, so its maker is to blame.
  const UserContextRef& source_context() const { return source_context_; }

  // `handles` are free; see CheckNewArrayHandles.
  void BindArrays(absl::Span<const uint64_t> handles, std::vector<ifrt::ArrayRef> arrays,
                  const UserContextRef& context);
  // Binds those of `handles` that are free to the error.
  void BindError(absl::Span<const uint64_t> handles, const absl::Status& error);

  void Respond(xla::ifrt::proxy::IfrtResponse response, Counting counting = Counting::kCounted,
               Urgency urgency = Urgency::kNow);
  void Fail(absl::Status error);
  // `error` with this call's user context, or that of the array that caused it.
  absl::Status Blame(absl::Status error) const;
  const UserContextRef& error_context() const { return error_context_; }
  void set_error_context(UserContextRef context) { error_context_ = std::move(context); }

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t op_id_;
  const UserContextRef context_;
  UserContextRef error_context_;
  UserContextRef source_context_;
  bool answered_ = false;
};
using CallRef = std::unique_ptr<Call>;

// Whether handles that a client wants to give to new arrays can be used: all in the client's range, free and different.
absl::Status CheckNewArrayHandles(Session& session, absl::Span<const uint64_t> handles);

// The common form of requests that make arrays under handles which the client chose: checks the handles, makes the
// arrays, binds the handles to them or to the error, answers. `context`: to blame if an array fails later; it is asked
// for after `make`.
void AnswerWithArrays(CallRef call, absl::Span<const uint64_t> handles, xla::ifrt::proxy::IfrtResponse response,
                      absl::FunctionRef<absl::StatusOr<std::vector<ifrt::ArrayRef>>()> make,
                      const UserContextRef& (Call::*context)() const = &Call::context);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_CALL_H_
