// Asynchronous FFI handlers: C trampolines that the plugin calls, and the calls that they hand on.
//
// A trampoline is a plain function without a closure, so there is a fixed table of them, one per plugin and target.
#include "pjrt/ffi.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/fiber.h"
#include "base/steady_clock.h"
#include "pjrt/completion_threads.h"
#include "pjrt/plugin.h"
#include "pjrt/plugin_order.h"
#include "spdlog/spdlog.h"
#include "xla/ffi/api/c_api.h"

namespace openpathways::pjrt {

struct FfiCall::State {
  const XLA_FFI_Api* api = nullptr;
  XLA_FFI_Future* future = nullptr;
  XLA_FFI_Attrs attributes{};
  std::vector<FfiBuffer> operands;
  std::vector<FfiBuffer> results;
  ExecuteScope scope;
  int32_t device_ordinal = 0;

  // Who waits for the end: the device's thread in HandleCall, or, once that has run out of patience, the plugin.
  std::mutex mu;
  std::condition_variable finished;
  Fiber* waiting_fiber = nullptr;      // guarded by mu
  std::optional<absl::Status> result;  // guarded by mu
  bool left_to_plugin = false;         // guarded by mu
};

namespace {

constexpr size_t kMaxHandlers = 32;

// How long a device's thread waits for its call to finish. To go on on the thread that the device has anyway takes one
// wake-up. To go on later takes two, but holds no thread: that is for long waits, and for devices that reach several
// calls in different orders and so wait for each other.
constexpr auto kPatience = std::chrono::milliseconds(1);

struct Slot {
  // Written under the table's mutex; read by calls without it.
  std::atomic<std::shared_ptr<const FfiHandler>> handler;
  std::atomic<int64_t> scope_type_id{0};
  const PluginImpl* plugin = nullptr;
  std::string target;
};

struct SlotTable {
  absl::Mutex mu;
  size_t used = 0;
  std::array<Slot, kMaxHandlers> slots;
};

SlotTable& Slots() {
  static auto* table = new SlotTable;  // the plugin may call handlers until the process ends
  return *table;
}

XLA_FFI_Error* MakeError(const XLA_FFI_Api* api, const absl::Status& status) {
  const std::string message = EncodeStatus(status);
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = static_cast<XLA_FFI_Error_Code>(status.code());  // the codes are absl's
  return api->XLA_FFI_Error_Create(&args);
}

// Takes the error over.
absl::Status ToStatus(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error == nullptr) return absl::OkStatus();
  XLA_FFI_Error_GetDetails_Args details{};
  details.struct_size = XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE;
  details.error = error;
  api->XLA_FFI_Error_GetDetails(&details);
  absl::Status status(static_cast<absl::StatusCode>(details.errc), details.message);
  XLA_FFI_Error_Destroy_Args destroy{};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  return status;
}

// Device memory packs sub-byte elements.
absl::StatusOr<FfiBuffer> ReadBuffer(const XLA_FFI_Buffer& in) {
  FfiBuffer out;
  out.element_type = in.dtype;
  out.dimensions = absl::MakeConstSpan(in.dims, in.rank);
  out.data = in.data;
  absl::StatusOr<int> bits = ElementBits(in.dtype);
  if (!bits.ok()) return bits.status();
  size_t count = 1;
  for (int64_t dimension : out.dimensions) count *= dimension;
  out.size = (count * *bits + 7) / 8;
  return out;
}

absl::Status ReadBuffers(const XLA_FFI_CallFrame& frame, FfiCall::State& state) {
  state.operands.reserve(frame.args.size);
  for (int64_t i = 0; i < frame.args.size; ++i) {
    absl::StatusOr<FfiBuffer> buffer = ReadBuffer(*static_cast<const XLA_FFI_Buffer*>(frame.args.args[i]));
    if (!buffer.ok()) return buffer.status();
    state.operands.push_back(*buffer);
  }
  state.results.reserve(frame.rets.size);
  for (int64_t i = 0; i < frame.rets.size; ++i) {
    absl::StatusOr<FfiBuffer> buffer = ReadBuffer(*static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[i]));
    if (!buffer.ok()) return buffer.status();
    state.results.push_back(*buffer);
  }
  return absl::OkStatus();
}

absl::Status ReadContext(const XLA_FFI_CallFrame& frame, int64_t scope_type_id, FfiCall::State& state) {
  XLA_FFI_TypeId type_id{scope_type_id};
  XLA_FFI_InvokeContext_Get_Args get{};
  get.struct_size = XLA_FFI_InvokeContext_Get_Args_STRUCT_SIZE;
  get.ctx = frame.ctx;
  get.type_id = &type_id;
  absl::Status status = ToStatus(frame.api, frame.api->XLA_FFI_InvokeContext_Get(&get));
  if (!status.ok()) return status;
  state.scope = *static_cast<const ExecuteScope*>(get.data);
  XLA_FFI_DeviceOrdinal_Get_Args ordinal{};
  ordinal.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
  ordinal.ctx = frame.ctx;
  status = ToStatus(frame.api, frame.api->XLA_FFI_DeviceOrdinal_Get(&ordinal));
  state.device_ordinal = ordinal.device_ordinal;
  return status;
}

// XLA asks every handler at registration which version of the FFI it was built against.
bool AnswerMetadataQuery(const XLA_FFI_CallFrame& frame) {
  const XLA_FFI_InternalExtension* extension = frame.extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  metadata->api_version.extension_start = nullptr;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  metadata->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
  return true;
}

// False if the result is still not there after some time. A fiber waits without limit: its thread goes on meanwhile.
// The plugin's own threads do not wait at all: they may have other parts of programs to run.
bool AwaitResult(FfiCall::State& state, std::unique_lock<std::mutex>& lock) {
  if (state.result.has_value()) return true;
  if (Fiber::Current() == nullptr && !in_execute) return false;
  const int64_t start = SteadyNanos();
  bool there = true;
  if (Fiber* fiber = Fiber::Current(); fiber != nullptr) {
    state.waiting_fiber = fiber;
    lock.unlock();
    fiber->Suspend();
    lock.lock();
  } else {
    there = state.finished.wait_for(lock, kPatience, [&] { return state.result.has_value(); });
  }
  if (state.scope.waited_nanos != nullptr) state.scope.waited_nanos->fetch_add(SteadyNanos() - start);
  return there;
}

XLA_FFI_Error* HandleCall(Slot& slot, XLA_FFI_CallFrame* frame) {
  if (AnswerMetadataQuery(*frame)) return nullptr;
  TakeFromPlugin();
  std::shared_ptr<const FfiHandler> handler = slot.handler.load();
  auto state = std::make_shared<FfiCall::State>();
  state->api = frame->api;
  state->attributes = frame->attrs;
  absl::Status status = ReadBuffers(*frame, *state);
  if (status.ok()) status = ReadContext(*frame, slot.scope_type_id.load(), *state);
  if (!status.ok()) return MakeError(frame->api, status);

  (*handler)(FfiCall(state));
  GiveToPlugin();
  std::unique_lock lock(state->mu);
  if (AwaitResult(*state, lock)) return state->result->ok() ? nullptr : MakeError(frame->api, *state->result);
  XLA_FFI_Future_Create_Args create{};
  create.struct_size = XLA_FFI_Future_Create_Args_STRUCT_SIZE;
  state->left_to_plugin = true;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Future_Create(&create)) return error;
  state->future = create.future;
  frame->future = create.future;
  return nullptr;
}

// Ends a call that was left to the plugin. Runs what waited for it on this thread.
void SetResult(const FfiCall::State& state, const absl::Status& status) {
  if (state.future == nullptr) return;  // it could not be left: the device has its error
  GiveToPlugin();
  XLA_FFI_Error* error = nullptr;
  if (status.ok()) {
    XLA_FFI_Future_SetAvailable_Args args{};
    args.struct_size = XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE;
    args.future = state.future;
    error = state.api->XLA_FFI_Future_SetAvailable(&args);
  } else {
    XLA_FFI_Future_SetError_Args args{};
    args.struct_size = XLA_FFI_Future_SetError_Args_STRUCT_SIZE;
    args.future = state.future;
    args.error = MakeError(state.api, status);
    error = state.api->XLA_FFI_Future_SetError(&args);
  }
  if (error != nullptr) {
    // The device now waits for ever. It cannot happen with a plugin of a compatible version.
    spdlog::critical("the plugin refused the end of a custom call: {}", ToStatus(state.api, error).ToString());
  }
}

template <size_t index>
XLA_FFI_Error* Trampoline(XLA_FFI_CallFrame* frame) {
  return HandleCall(Slots().slots[index], frame);
}

template <size_t... indices>
constexpr std::array<XLA_FFI_Handler*, sizeof...(indices)> MakeTrampolines(std::index_sequence<indices...>) {
  return {Trampoline<indices>...};
}

constexpr std::array<XLA_FFI_Handler*, kMaxHandlers> kTrampolines =
    MakeTrampolines(std::make_index_sequence<kMaxHandlers>());

// Index of the attribute, or -1.
int64_t FindAttribute(const XLA_FFI_Attrs& attributes, absl::string_view name) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    if (absl::string_view(attributes.names[i]->ptr, attributes.names[i]->len) == name) return i;
  }
  return -1;
}

}  // namespace

absl::StatusOr<void*> BindHandler(const PluginImpl* plugin, int64_t scope_type_id, const std::string& target,
                                  FfiHandler handler, bool& is_new) {
  SlotTable& table = Slots();
  absl::MutexLock lock(&table.mu);
  size_t index = 0;
  while (index < table.used && (table.slots[index].plugin != plugin || table.slots[index].target != target)) ++index;
  is_new = index == table.used;
  if (index == kMaxHandlers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for FFI handler ", target, ": this process has ", kMaxHandlers, " already"));
  }
  Slot& slot = table.slots[index];
  if (is_new) {
    slot.plugin = plugin;
    slot.target = target;
    slot.scope_type_id.store(scope_type_id);
    ++table.used;
  }
  slot.handler.store(std::make_shared<const FfiHandler>(std::move(handler)));
  return reinterpret_cast<void*>(kTrampolines[index]);
}

FfiCall::FfiCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
FfiCall::FfiCall(FfiCall&&) noexcept = default;

FfiCall& FfiCall::operator=(FfiCall&& other) noexcept {
  if (this != &other) {
    if (state_ != nullptr) Finish(absl::AbortedError("an FFI handler dropped its call"));
    state_ = std::move(other.state_);
  }
  return *this;
}

FfiCall::~FfiCall() {
  if (state_ != nullptr) Finish(absl::AbortedError("an FFI handler dropped its call"));
}

void* FfiCall::user_data() const { return state_->scope.user_data; }
int64_t FfiCall::launch_id() const { return state_->scope.launch_id; }
int32_t FfiCall::device_ordinal() const { return state_->device_ordinal; }
const std::vector<FfiBuffer>& FfiCall::operands() const { return state_->operands; }
const std::vector<FfiBuffer>& FfiCall::results() const { return state_->results; }

absl::StatusOr<absl::string_view> FfiCall::StringAttribute(absl::string_view name) const {
  const int64_t i = FindAttribute(state_->attributes, name);
  if (i < 0) return absl::NotFoundError(absl::StrCat("custom call has no attribute ", name));
  if (state_->attributes.types[i] != XLA_FFI_AttrType_STRING) {
    return absl::InvalidArgumentError(absl::StrCat("custom call attribute ", name, " is no string"));
  }
  const auto* bytes = static_cast<const XLA_FFI_ByteSpan*>(state_->attributes.attrs[i]);
  return absl::string_view(bytes->ptr, bytes->len);
}

absl::StatusOr<int64_t> FfiCall::IntAttribute(absl::string_view name) const {
  const int64_t i = FindAttribute(state_->attributes, name);
  if (i < 0) return absl::NotFoundError(absl::StrCat("custom call has no attribute ", name));
  if (state_->attributes.types[i] == XLA_FFI_AttrType_SCALAR) {
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(state_->attributes.attrs[i]);
    switch (scalar->dtype) {
      case XLA_FFI_DataType_S8:
        return *static_cast<const int8_t*>(scalar->value);
      case XLA_FFI_DataType_S16:
        return *static_cast<const int16_t*>(scalar->value);
      case XLA_FFI_DataType_S32:
        return *static_cast<const int32_t*>(scalar->value);
      case XLA_FFI_DataType_S64:
        return *static_cast<const int64_t*>(scalar->value);
      case XLA_FFI_DataType_U8:
        return *static_cast<const uint8_t*>(scalar->value);
      case XLA_FFI_DataType_U16:
        return *static_cast<const uint16_t*>(scalar->value);
      case XLA_FFI_DataType_U32:
        return *static_cast<const uint32_t*>(scalar->value);
      default:
        break;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("custom call attribute ", name, " is no integer of up to 64 bits"));
}

void FfiCall::Finish(const absl::Status& status) {
  std::shared_ptr<State> state = std::move(state_);
  if (state == nullptr) return;  // finished before
  {
    std::lock_guard lock(state->mu);
    if (!state->left_to_plugin) {
      state->result = status;
      if (state->waiting_fiber != nullptr) {
        state->waiting_fiber->Resume();
      } else {
        state->finished.notify_one();
      }
      return;
    }
  }
  CompletionThreads::Get().Run([state = std::move(state), status] { SetResult(*state, status); });
}

}  // namespace openpathways::pjrt
