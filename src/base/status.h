// Macros and conversions for absl::Status, the project's one status type.
#ifndef OPENPATHWAYS_BASE_STATUS_H_
#define OPENPATHWAYS_BASE_STATUS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status.pb.h"

namespace openpathways {

// To and from the wire form. Payloads are kept.
base::StatusProto StatusToProto(const absl::Status& status);
absl::Status StatusFromProto(const base::StatusProto& proto);

// `status` with "context: " before its message; code and payloads are kept. OK stays OK.
absl::Status AnnotateStatus(const absl::Status& status, absl::string_view context);

}  // namespace openpathways

#define PATHWAYS_CONCAT_INNER(a, b) a##b
#define PATHWAYS_CONCAT(a, b) PATHWAYS_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` is not OK.
#define RETURN_IF_ERROR(expr)                                                                 \
  do {                                                                                        \
    if (absl::Status pathways_status = (expr); !pathways_status.ok()) return pathways_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, StatusOrExpression());
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL(PATHWAYS_CONCAT(pathways_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr)    \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

#endif  // OPENPATHWAYS_BASE_STATUS_H_
