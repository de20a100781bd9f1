// What all objects of this folder share: the plugin's function table, and its errors and events as ours. Private.
#ifndef OPENPATHWAYS_PJRT_API_H_
#define OPENPATHWAYS_PJRT_API_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/future.h"
#include "pjrt/element_type.h"
#include "pjrt/extensions.h"
#include "pjrt_c_api.h"

namespace openpathways::pjrt {

// An argument struct of the C API, zeroed, with its size filled in.
template <typename Args>
Args MakeArgs() {
  Args args{};
  args.struct_size = sizeof(Args);
  return args;
}

// A plugin's table. Lives as long as the process, like the library that it points into.
class Api {
 public:
  explicit Api(const PJRT_Api* table) : table_(table) {}

  const PJRT_Api* operator->() const { return table_; }

  // Takes the error over. A status that a handler gave to FfiCall::Finish comes out as it went in.
  absl::Status ToStatus(PJRT_Error* error) const;

  // Takes the event over.
  Future<> ToFuture(PJRT_Event* event) const;

  // nullptr if the plugin does not have it, or an older and smaller form of it.
  template <typename Extension>
  const Extension* Find(int type) const {
    return static_cast<const Extension*>(FindExtension(type, sizeof(Extension)));
  }

 private:
  const void* FindExtension(int type, size_t size) const;
  const PJRT_Api* table_;
};

// A status as a message from which DecodeStatus recovers code and message, whatever XLA puts around it. XLA keeps the
// code of a handler's error on some paths only.
std::string EncodeStatus(const absl::Status& status);
absl::Status DecodeStatus(absl::StatusCode code, absl::string_view message);

absl::StatusOr<PJRT_Buffer_Type> ToPjrtType(ElementType type);
absl::StatusOr<ElementType> FromPjrtType(PJRT_Buffer_Type type);

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_API_H_
