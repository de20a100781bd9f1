#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "proxy/requests.h"

namespace openpathways::proxy {
namespace {

// Answers `call` with `response`, which `complete` completes, once the future is there, or with its error.
using Complete = std::function<void(wire::IfrtResponse&)>;
void AnswerWhenReady(CallRef call, FutureEntryRef entry, wire::IfrtResponse response, Complete complete = nullptr) {
  call->set_error_context(entry->context);
  const Counting counting = entry->is_deletion ? Counting::kNotCounted : Counting::kCounted;
  entry->future.OnReady([call = std::move(call), counting, response = std::move(response),
                         complete = std::move(complete)](const absl::Status& status) mutable {
    if (!status.ok()) return call->Fail(status);
    if (complete) complete(response);
    call->Respond(std::move(response), counting);
  });
}

}  // namespace

void Handle(CallRef call, const wire::CheckFutureRequest& request) {
  absl::StatusOr<FutureEntryRef> entry = call->session().futures().Take(request.future_handle());
  if (!entry.ok()) return call->Fail(entry.status());
  wire::IfrtResponse response;
  response.mutable_check_future_response();
  AnswerWhenReady(std::move(call), *std::move(entry), std::move(response));
}

void Handle(CallRef call, const wire::LoadedExecutableFetchExecuteResultRequest& request) {
  absl::StatusOr<FutureEntryRef> entry = call->session().statuses().Take(request.result_status_handle());
  if (!entry.ok()) return call->Fail(entry.status());
  wire::IfrtResponse response;
  response.mutable_loaded_executable_fetch_execute_result_response();
  Complete complete;
  if ((*entry)->device_nanos != nullptr) {
    complete = [platform = call->backend().platform_name(),
                nanos = (*entry)->device_nanos](wire::IfrtResponse& response) {
      auto& times = *response.mutable_loaded_executable_fetch_execute_result_response()->mutable_device_time();
      times[platform] = static_cast<double>(nanos->load()) / 1000;  // microseconds
    };
  }
  AnswerWhenReady(std::move(call), *std::move(entry), std::move(response), std::move(complete));
}

namespace {

// Answers with the error of the first array that failed, which was caused by that array's maker.
void FailWithFirstError(CallRef call, std::vector<ArrayEntryRef> entries, const absl::Status& any_error) {
  std::vector<Future<>> ready;
  for (const ArrayEntryRef& entry : entries) ready.push_back((**entry->array).Ready());
  WhenAll(ready).OnReady([call = std::move(call), entries = std::move(entries), ready,
                          any_error](const absl::Status& first_error) mutable {
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].Await().ok()) continue;  // all of them are there: this does not wait
      call->set_error_context(entries[i]->context);
      break;
    }
    call->Fail(first_error.ok() ? any_error : first_error);
  });
}

}  // namespace

void Handle(CallRef call, const wire::CheckValueReadyRequest& request) {
  std::vector<ArrayEntryRef> entries;
  std::vector<ifrt::ArrayRef> arrays;
  for (uint64_t handle : request.value_handles()) {
    absl::StatusOr<ArrayEntryRef> entry = call->FindEntry(handle);
    if (!entry.ok()) return call->Fail(entry.status());
    arrays.push_back(*(*entry)->array);
    if (const absl::Status usable = arrays.back()->Usable(); !usable.ok()) {
      call->set_error_context((*entry)->context);
      return call->Fail(usable);
    }
    entries.push_back(*std::move(entry));
  }
  ifrt::Array::WhenAllReady(arrays).OnReady(
      [call = std::move(call), entries = std::move(entries)](const absl::Status& status) mutable {
        if (!status.ok()) return FailWithFirstError(std::move(call), std::move(entries), status);
        wire::IfrtResponse response;
        response.mutable_check_value_ready_response();
        call->Respond(std::move(response));
      });
}

}  // namespace openpathways::proxy
