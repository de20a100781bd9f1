// Errors in the words that clients expect.
#ifndef OPENPATHWAYS_IFRT_CLIENT_STATUS_H_
#define OPENPATHWAYS_IFRT_CLIENT_STATUS_H_

#include "absl/status/status.h"

namespace openpathways::ifrt {

// Elastic clients take any error whose text has the word INTERNAL for the loss of a slice, and retry for ever; only
// DATA_LOSS may mean that. Gives the same error under another name: code UNKNOWN for INTERNAL, and the word in lower
// case. Every error that comes from a plugin or a compiler passes through here on its way to a client.
absl::Status ForClient(const absl::Status& status);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_CLIENT_STATUS_H_
