// One array shard on its way from a controller to devices of this worker.
//
// The pieces are gathered in one aligned block of the arena, which the device buffers then adopt without a copy where
// the data is dense: all targets share it. Strided data is put in order on the way.
#ifndef OPENPATHWAYS_WORKER_HOST_TRANSFER_H_
#define OPENPATHWAYS_WORKER_HOST_TRANSFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "pjrt/pjrt.h"
#include "transport/buffer.h"
#include "worker/executor.h"
#include "worker/host_layout.h"
#include "worker/named_buffer.h"
#include "worker/worker.pb.h"

namespace openpathways::worker {

// A new buffer and where it is to be.
struct TargetBuffer {
  NamedBufferRef buffer;
  pjrt::Device* device = nullptr;
  pjrt::Memory* memory = nullptr;
};

// A device buffer from dense row-major bytes, adopted if possible; `bytes` stays alive as long as it is needed.
absl::StatusOr<std::unique_ptr<pjrt::Buffer>> BufferFromDenseBytes(pjrt::Client& client, int element_type,
                                                                   absl::Span<const int64_t> dims,
                                                                   const TargetBuffer& target,
                                                                   const transport::Buffer& bytes);

// Called on the controller's command thread; the bulk work is done by `pool`.
class HostTransfer : public std::enable_shared_from_this<HostTransfer> {
 public:
  HostTransfer(std::shared_ptr<pjrt::Client> client, transport::Arena* arena, ThreadPool* pool,
               std::vector<TargetBuffer> targets);

  // Checks the request and gets the memory. All errors go to the targets; data that comes after an error is ignored.
  void Begin(const BeginHostTransfer& request);
  // True when the last byte has come. After a failure bytes are only counted.
  bool AddData(int64_t offset, transport::Buffer data);
  void Abort(const absl::Status& status);

 private:
  void Fail(const absl::Status& status);
  void SetError(const absl::Status& status);
  void CopyPiece(int64_t offset, const transport::Buffer& data);
  void PieceDone();
  void MakeBuffers();
  absl::StatusOr<std::unique_ptr<pjrt::Buffer>> MakeBuffer(const TargetBuffer& target);
  absl::StatusOr<transport::Buffer> Densify() const;

  const std::shared_ptr<pjrt::Client> client_;
  transport::Arena* const arena_;
  ThreadPool* const pool_;
  const std::vector<TargetBuffer> targets_;

  // Command thread only.
  bool ended_ = false;
  int64_t size_ = 0;
  int64_t received_ = 0;

  // Set by Begin, before any work is handed to the pool.
  int element_type_ = 0;
  std::optional<HostLayout> layout_;
  transport::Buffer memory_;

  // Copies that have not finished, and one for the transfer itself until all data has come.
  std::atomic<int> pending_{1};
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_HOST_TRANSFER_H_
