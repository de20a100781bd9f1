#include "pjrt/api.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "pjrt/plugin_order.h"

namespace openpathways::pjrt {
namespace {

constexpr absl::string_view kStatusMark = "[openpathways status ";

// Reads "15/123]" off the front of `text`.
bool ConsumeNumbers(absl::string_view& text, int& code, size_t& size) {
  size_t slash = text.find('/');
  size_t end = text.find(']');
  if (slash == absl::string_view::npos || end == absl::string_view::npos || end < slash) return false;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text.substr(0, slash), &code)) return false;
  if (!absl::SimpleAtoi(text.substr(slash + 1, end - slash - 1), &number)) return false;
  size = number;
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace

std::string EncodeStatus(const absl::Status& status) {
  return absl::StrCat(kStatusMark, static_cast<int>(status.code()), "/", status.message().size(), "]",
                      status.message());
}

absl::Status DecodeStatus(absl::StatusCode code, absl::string_view message) {
  size_t mark = message.find(kStatusMark);
  if (mark != absl::string_view::npos) {
    absl::string_view rest = message.substr(mark + kStatusMark.size());
    int inner_code = 0;
    size_t size = 0;
    if (ConsumeNumbers(rest, inner_code, size)) {
      return absl::Status(static_cast<absl::StatusCode>(inner_code), rest.substr(0, size));
    }
  }
  return absl::Status(code, message);
}

absl::Status Api::ToStatus(PJRT_Error* error) const {
  if (error == nullptr) return absl::OkStatus();
  auto message = MakeArgs<PJRT_Error_Message_Args>();
  message.error = error;
  table_->PJRT_Error_Message(&message);
  auto code = MakeArgs<PJRT_Error_GetCode_Args>();
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  if (PJRT_Error* second = table_->PJRT_Error_GetCode(&code)) {
    auto destroy = MakeArgs<PJRT_Error_Destroy_Args>();
    destroy.error = second;
    table_->PJRT_Error_Destroy(&destroy);
  }
  // The codes are absl's.
  absl::Status status =
      DecodeStatus(static_cast<absl::StatusCode>(code.code), absl::string_view(message.message, message.message_size));
  auto destroy = MakeArgs<PJRT_Error_Destroy_Args>();
  destroy.error = error;
  table_->PJRT_Error_Destroy(&destroy);
  // The CPU plugin loses the code of a failed allocation when it wraps the message.
  if (status.code() != absl::StatusCode::kResourceExhausted &&
      absl::StrContains(status.message(), "Out of memory allocating")) {
    return absl::ResourceExhaustedError(status.message());
  }
  return status;
}

Future<> Api::ToFuture(PJRT_Event* event) const {
  struct Pending {
    Api api;
    PJRT_Event* event;
    Promise<> promise;
  };
  auto destroy_event = [](const Api& api, PJRT_Event* event) {
    auto destroy = MakeArgs<PJRT_Event_Destroy_Args>();
    destroy.event = event;
    return api.ToStatus(api->PJRT_Event_Destroy(&destroy));
  };

  auto ready = MakeArgs<PJRT_Event_IsReady_Args>();
  ready.event = event;
  if (absl::Status status = ToStatus(table_->PJRT_Event_IsReady(&ready)); status.ok() && ready.is_ready) {
    TakeFromPlugin();
    auto error = MakeArgs<PJRT_Event_Error_Args>();
    error.event = event;
    absl::Status result = ToStatus(table_->PJRT_Event_Error(&error));
    absl::Status destroyed = destroy_event(*this, event);
    return Future<>(result.ok() ? destroyed : result);
  }

  auto* pending = new Pending{*this, event, {}};
  Future<> future = pending->promise.future();
  auto args = MakeArgs<PJRT_Event_OnReady_Args>();
  args.event = event;
  args.user_arg = pending;
  args.callback = [](PJRT_Error* error, void* arg) {
    TakeFromPlugin();
    std::unique_ptr<Pending> pending(static_cast<Pending*>(arg));
    absl::Status status = pending->api.ToStatus(error);
    auto destroy = MakeArgs<PJRT_Event_Destroy_Args>();
    destroy.event = pending->event;
    absl::Status destroyed = pending->api.ToStatus(pending->api->PJRT_Event_Destroy(&destroy));
    pending->promise.Set(status.ok() ? destroyed : status);
  };
  GiveToPlugin();
  if (PJRT_Error* error = table_->PJRT_Event_OnReady(&args)) {  // then the callback never runs
    absl::Status status = ToStatus(error);
    destroy_event(*this, event).IgnoreError();
    pending->promise.Set(status);
    delete pending;
  }
  return future;
}

const void* Api::FindExtension(int type, size_t size) const {
  const auto* extension = reinterpret_cast<const ExtensionBase*>(table_->extension_start);
  for (; extension != nullptr; extension = extension->next) {
    if (extension->type == type) return extension->struct_size >= size ? extension : nullptr;
  }
  return nullptr;
}

}  // namespace openpathways::pjrt
