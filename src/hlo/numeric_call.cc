#include "hlo/numeric_call.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace openpathways::hlo {

std::string EncodeRaggedDot(const RaggedDot& dot) {
  auto format = [&dot](std::string* out, const RaggedDot::Field& field) {
    absl::StrAppend(out, field.attribute, " = ", dot.*field.value, " : i64");
  };
  return absl::StrCat("{", absl::StrJoin(RaggedDot::Fields(), ", ", format), "}");
}

}  // namespace openpathways::hlo
