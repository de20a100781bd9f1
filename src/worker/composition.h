// New buffers that are put together from parts of others, of this worker and of its peers.
//
// The pieces are copied into one block of the arena as they come, which the device buffers then adopt: all targets
// share it.
#ifndef OPENPATHWAYS_WORKER_COMPOSITION_H_
#define OPENPATHWAYS_WORKER_COMPOSITION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "pjrt/pjrt.h"
#include "transport/buffer.h"
#include "worker/boxes.h"
#include "worker/executor.h"
#include "worker/host_transfer.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

// Dense bytes of an array in host memory.
struct HostArray {
  transport::Buffer bytes;
  int element_type = 0;
  std::vector<int64_t> dims;
};

// Thread-safe. Kept alive by whoever still has to add a piece.
class Composition : public std::enable_shared_from_this<Composition> {
 public:
  // `pool` and `arena` outlive it.
  Composition(std::shared_ptr<pjrt::Client> client, transport::Arena* arena, ThreadPool* pool,
              std::vector<TargetBuffer> targets, MoveBoxes::Composition what);

  // Before any piece is added. All errors go to the targets.
  void Begin();

  // Piece number `i` is at hand: it begins at `begin` in `source`. Once for each; the last one makes the buffers. Does
  // not block.
  void Add(int i, const absl::StatusOr<HostArray>& source, Extents begin);

 private:
  absl::Status Check() const;
  void Fail(const absl::Status& status);
  absl::Status Copy(const MoveBoxes::Piece& piece, const HostArray& source, Extents begin);
  absl::StatusOr<transport::Buffer> Memory();
  void PieceDone();
  void MakeBuffers();

  const std::shared_ptr<pjrt::Client> client_;
  transport::Arena* const arena_;
  ThreadPool* const pool_;
  const std::vector<TargetBuffer> targets_;
  const MoveBoxes::Composition what_;
  size_t size_ = 0;          // in bytes; set by Begin
  size_t element_size_ = 0;  // set by Begin
  std::atomic<int> missing_;
  std::atomic<bool> failed_{false};

  absl::Mutex mu_;
  transport::Buffer memory_ ABSL_GUARDED_BY(mu_);  // there when the first piece comes
  bool from_peer_ ABSL_GUARDED_BY(mu_) = false;    // it is not this worker's arena's
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_COMPOSITION_H_
