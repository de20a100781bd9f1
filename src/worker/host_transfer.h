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
  std::vector<int64_t> minor_to_major;  // empty: row-major
};

// Whether arrays of this type are HostValues: the plugin has no buffers of it.
bool LivesOnHost(int element_type);

// INVALID_ARGUMENT unless the bytes are a serialized Strings of as many strings as an array of `dims` has elements.
absl::Status CheckStrings(const transport::Buffer& bytes, absl::Span<const int64_t> dims);

// A device buffer from dense row-major bytes, adopted if possible; `bytes` stays alive as long as it is needed. A
// target with a layout of its own gets a copy, made in `arena`.
absl::StatusOr<std::unique_ptr<pjrt::Buffer>> BufferFromDenseBytes(pjrt::Client& client, int element_type,
                                                                   absl::Span<const int64_t> dims,
                                                                   const TargetBuffer& target,
                                                                   const transport::Buffer& bytes,
                                                                   transport::Arena& arena);
// Fills a target from such bytes, of whatever type. `in_arena`: the bytes are in this worker's own arena.
void SetFromDenseBytes(pjrt::Client& client, int element_type, absl::Span<const int64_t> dims,
                       const TargetBuffer& target, const transport::Buffer& bytes, bool in_arena,
                       transport::Arena& arena);

// A copy in another memory or layout; another name for the same buffer if it is there already. Values never change, so
// that is the same, as long as no launch takes the memory. On the command thread. REQUIRES: the source's value is
// there.
void CopyBuffer(const std::shared_ptr<pjrt::Client>& client, transport::Arena* arena, const PinRef& source,
                const TargetBuffer& target);

// Called on the controller's command thread; the bulk work is done by `pool`.
class HostTransfer : public std::enable_shared_from_this<HostTransfer> {
 public:
  HostTransfer(std::shared_ptr<pjrt::Client> client, transport::Arena* arena, ThreadPool* pool,
               std::vector<TargetBuffer> targets);

  // Checks the request and gets the memory. All errors go to the targets; data that comes after an error is ignored.
  void Begin(const BeginHostTransfer& request);
  // True when the last byte has come. After a failure bytes are only counted. `last` counts only if the size was not
  // announced.
  bool AddData(int64_t offset, transport::Buffer data, bool last);
  void Abort(const absl::Status& status);

 private:
  void Fail(const absl::Status& status);
  void SetError(const absl::Status& status);
  void Collect(transport::Buffer data, bool last);
  void CopyPiece(int64_t offset, const transport::Buffer& data);
  void PieceDone();
  void MakeBuffers();
  void MakeBuffer(const TargetBuffer& target);
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
  std::vector<int64_t> dims_;
  std::optional<HostLayout> layout_;  // not for strings
  transport::Buffer memory_;
  std::vector<transport::Buffer> collected_;  // command thread only; the pieces of strings

  // Copies that have not finished, and one for the transfer itself until all data has come.
  std::atomic<int> pending_{1};
};

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_HOST_TRANSFER_H_
