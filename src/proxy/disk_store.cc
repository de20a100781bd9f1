#include "proxy/disk_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "proxy/grpc_bytes.h"

namespace openpathways::proxy {
namespace {

constexpr int64_t kPieceSize = 4 << 20;
constexpr int kPiecesAhead = 4;

absl::Status FileError(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("The host buffer file ", path, " cannot be read"));
}

}  // namespace

class DiskStore::TaskQueue {
 public:
  // Drops the task once stopped.
  void Post(absl::AnyInvocable<void()> task) {
    absl::MutexLock lock(&mu_);
    if (!stopped_) tasks_.push_back(std::move(task));
  }

  void Stop() {
    std::deque<absl::AnyInvocable<void()>> dropped;  // dies after the lock is released
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    dropped.swap(tasks_);
  }

  // Runs tasks until stopped.
  void Run() {
    while (absl::AnyInvocable<void()> task = Next()) task();
  }

 private:
  absl::AnyInvocable<void()> Next() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](TaskQueue* queue) ABSL_NO_THREAD_SAFETY_ANALYSIS { return queue->stopped_ || !queue->tasks_.empty(); },
        this));
    if (stopped_) return nullptr;
    absl::AnyInvocable<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
};

// One file on its way into a host buffer. Used by the store's thread, apart from what is said otherwise.
class DiskStore::File : public std::enable_shared_from_this<File> {
 public:
  File(std::shared_ptr<TaskQueue> queue, transport::Arena* memory, std::string path, int fd, int64_t size,
       ifrt::HostBufferRef buffer)
      : queue_(std::move(queue)),
        memory_(memory),
        path_(std::move(path)),
        fd_(fd),
        size_(size),
        buffer_(std::move(buffer)) {}
  ~File() {
    close(fd_);
    if (!finished_) buffer_->Finish(absl::CancelledError("The server stopped reading a host buffer file"));
  }

  void ReadAhead() {
    while (!finished_ && ahead_ < kPiecesAhead) ReadPiece();
  }

 private:
  void ReadPiece() {
    const int64_t size = std::min(kPieceSize, size_ - offset_);
    if (size == 0) return Finish(absl::OkStatus());
    absl::StatusOr<transport::Buffer> piece = AllocatePiece(size, memory_);
    if (!piece.ok()) return Finish(piece.status());
    for (int64_t done = 0; done < size;) {
      const ssize_t n = pread(fd_, piece->data() + done, size - done, offset_ + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Finish(FileError(path_, errno));
      if (n == 0) return Finish(absl::DataLossError(absl::StrCat("The host buffer file ", path_, " became shorter")));
      done += n;
    }
    offset_ += size;
    ++ahead_;
    // Taken on any thread: the next piece is read on the store's thread again.
    buffer_->Append(*std::move(piece), [self = shared_from_this()] {
      self->queue_->Post([self] {
        --self->ahead_;
        self->ReadAhead();
      });
    });
  }

  void Finish(const absl::Status& status) {
    finished_ = true;
    buffer_->Finish(status);
  }

  const std::shared_ptr<TaskQueue> queue_;
  transport::Arena* const memory_;
  const std::string path_;
  const int fd_;
  const int64_t size_;
  const ifrt::HostBufferRef buffer_;
  int64_t offset_ = 0;
  int ahead_ = 0;  // pieces that nobody has taken yet
  bool finished_ = false;
};

DiskStore::DiskStore(std::string directory)
    : directory_(std::move(directory)),
      queue_(std::make_shared<TaskQueue>()),
      thread_([queue = queue_] { queue->Run(); }) {}

DiskStore::~DiskStore() {
  queue_->Stop();
  thread_.join();
}

std::string DiskStore::DirectoryFromEnvironment() {
  for (const char* name :
       {"IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY", "IFRT_PROXY_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const char* test_tmpdir = std::getenv("TEST_TMPDIR");
    return absl::StrReplaceAll(value, {{"$$TEST_TMPDIR$$", test_tmpdir == nullptr ? "" : test_tmpdir}});
  }
  return "";
}

absl::Status DiskStore::Read(HostBufferTable& table, uint64_t handle, int64_t size) {
  if (directory_.empty()) {
    return absl::FailedPreconditionError(
        "This server shares no directory with clients: set IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY");
  }
  if (handle == 0 || size < 0) {
    return absl::InvalidArgumentError(absl::StrCat("Host buffer ", handle, " of ", size, " bytes cannot be stored"));
  }
  // Clients write the handle as a 32-bit number.
  const std::string path = absl::StrCat(directory_, "/lt_", static_cast<int32_t>(handle));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return FileError(path, errno);
  struct stat stat_buffer;
  absl::Status checked;
  if (fstat(fd, &stat_buffer) != 0) {
    checked = FileError(path, errno);
  } else if (!S_ISREG(stat_buffer.st_mode) || stat_buffer.st_size != size) {
    checked = absl::DataLossError(absl::StrCat("The host buffer file ", path, " has ", stat_buffer.st_size,
                                               " bytes instead of ", size,
                                               "; has another client written to the same directory?"));
  }
  absl::StatusOr<ifrt::HostBufferRef> buffer = checked.ok() ? table.BeginStore(handle, size) : checked;
  if (!buffer.ok()) {
    close(fd);
    return buffer.status();
  }
  // From now on nobody else can touch the bytes by name; they go when they have been read.
  unlink(path.c_str());
  auto file = std::make_shared<File>(queue_, table.memory(), path, fd, size, *std::move(buffer));
  queue_->Post([file = std::move(file)] { file->ReadAhead(); });
  return absl::OkStatus();
}

}  // namespace openpathways::proxy
