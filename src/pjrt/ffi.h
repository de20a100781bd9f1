// Handlers of custom calls: what a program calls when it reaches an instruction that we put into it.
//
// A handler is asynchronous: it takes the call, returns at once, and says later, from any thread, that it has finished.
// No thread of the plugin is held in between for longer than a millisecond. Facts: XLA's FFI (openxla/xla,
// xla/ffi/api/c_api.h); no XLA header is needed to write a handler.
#ifndef OPENPATHWAYS_PJRT_FFI_H_
#define OPENPATHWAYS_PJRT_FFI_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace openpathways::pjrt {

// An operand or result in device memory; dense in the layout that the instruction was given.
struct FfiBuffer {
  int element_type = 0;  // xla.PrimitiveType
  absl::Span<const int64_t> dimensions;
  void* data = nullptr;  // operands must not be written
  size_t size = 0;       // bytes; 0 for tokens and empty arrays
};

// One call of a handler by one device. Movable; not thread-safe. All memory that it points to (buffers, dimensions,
// attributes) is valid until Finish. A call that is destroyed without Finish finishes with an ABORTED error.
class FfiCall {
 public:
  struct State;  // internal
  explicit FfiCall(std::shared_ptr<State> state);
  FfiCall(FfiCall&&) noexcept;
  FfiCall& operator=(FfiCall&&) noexcept;
  ~FfiCall();

  // ExecuteArgs::user_data of the execution that this call belongs to; nullptr if it had none.
  void* user_data() const;
  // ExecuteArgs::launch_id of that execution.
  int64_t launch_id() const;
  // Number of the device among its client's local devices.
  int32_t device_ordinal() const;

  const std::vector<FfiBuffer>& operands() const;
  const std::vector<FfiBuffer>& results() const;

  // NOT_FOUND if there is no such attribute, INVALID_ARGUMENT if it has another type; both name it.
  absl::StatusOr<absl::string_view> StringAttribute(absl::string_view name) const;
  absl::StatusOr<int64_t> IntAttribute(absl::string_view name) const;  // any integer type

  // Lets the device go on, or ends its execution with the error: the outputs' Ready() and `done` then resolve to it,
  // with the code and message given here (without payloads). Once; any thread. Returns at once: the program goes on on
  // another thread.
  void Finish(const absl::Status& status);

 private:
  std::shared_ptr<State> state_;
};

// Called on the plugin's threads, by many devices at once. Must not wait for anything; a handler that computes finishes
// its call before it returns.
using FfiHandler = std::function<void(FfiCall)>;

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_FFI_H_
