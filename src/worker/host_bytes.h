// The host bytes of a buffer, for reads and for transfers to other workers.
#ifndef OPENPATHWAYS_WORKER_HOST_BYTES_H_
#define OPENPATHWAYS_WORKER_HOST_BYTES_H_

#include "base/future.h"
#include "transport/buffer.h"
#include "worker/executor.h"
#include "worker/named_buffer.h"

namespace openpathways::worker {

struct HostBytes {
  transport::Buffer bytes;
  bool in_arena = false;  // so that another process of this host can read them in place
};

// Dense row-major bytes (sub-byte types: one byte an element), or the buffer's error. Where possible the result is the
// device memory itself, which the result then keeps pinned; otherwise a copy in `arena`. Does not wait.
// `arena` must live until the future has resolved.
Future<HostBytes> GetHostBytes(PinRef pin, transport::Arena* arena);

// The same bytes in the arena: copied by `pool` if they are not there and big enough for that to pay.
Future<HostBytes> MoveToArena(const Future<HostBytes>& bytes, transport::Arena* arena, ThreadPool* pool);

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_HOST_BYTES_H_
