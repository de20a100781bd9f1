#include "compiler/program_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/logging.h"
#include "base/status.h"
#include "compiler/digest.h"

namespace openpathways::compiler {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kFormat = "OpenPathways compiled program 1\n";
constexpr char kSuffix[] = ".program", kUnfinishedSuffix[] = ".unfinished";
// What another process has begun to write and not finished after so long never will be.
constexpr std::time_t kUnfinishedSeconds = 3600;
// How much is left when something has to go, so that not each new program removes another.
constexpr double kKeptShare = 0.9;

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool ok() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // The error of a write may come as late as that.
  bool Close() { return close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

absl::StatusOr<std::string> ReadAll(int file) {
  struct stat info;
  if (fstat(file, &info) != 0) return absl::ErrnoToStatus(errno, "reading");
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "reading");
    if (n == 0) bytes.resize(done);  // it became shorter meanwhile
    done += static_cast<size_t>(n);
  }
  return bytes;
}

bool WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// What is wrong with a file's bytes; empty if nothing is, and then `program` is what they say.
std::string Parse(absl::string_view bytes, const std::string& key, StoredProgram& program) {
  if (!absl::ConsumePrefix(&bytes, kFormat)) return "it is no compiled program of this format";
  if (bytes.size() < Digest::kBytes) return "it was cut off";
  const absl::string_view checksum = bytes.substr(0, Digest::kBytes);
  bytes.remove_prefix(Digest::kBytes);
  if (Digest().Add(bytes).Finish() != checksum) return "its checksum does not match";
  if (!program.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return "it cannot be parsed";
  if (program.key() != key) return "it is another program";
  return "";
}

struct KnownFile {
  fs::path path;
  int64_t bytes = 0;
  timespec used{};
};

std::vector<KnownFile> ListFiles(const std::string& directory) {
  std::vector<KnownFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    struct stat info;
    if (lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    files.push_back({it->path(), static_cast<int64_t>(info.st_size), info.st_mtim});
  }
  return files;
}

bool IsProgram(const KnownFile& file) { return file.path.extension() == kSuffix; }

}  // namespace

std::string ProgramDirectory::FileOf(const std::string& key) const {
  const std::string name = absl::BytesToHexString(key);
  return absl::StrCat(path_, "/", name.substr(0, 2), "/", name, kSuffix);
}

std::optional<StoredProgram> ProgramDirectory::Read(const std::string& key) {
  const std::string path = FileOf(key);
  const File file(path, O_RDONLY);
  if (!file.ok()) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    static std::atomic<bool> warned{false};
    if (!missing && !warned.exchange(true)) {
      spdlog::warn("compile cache: {} and maybe others cannot be opened: {}", path, std::strerror(error));
    }
    return std::nullopt;
  }
  const absl::StatusOr<std::string> bytes = ReadAll(file.descriptor());
  if (!bytes.ok()) {
    spdlog::warn("compile cache: {}: {}", path, std::string(bytes.status().message()));
    return std::nullopt;
  }
  StoredProgram program;
  const std::string wrong = Parse(*bytes, key, program);
  if (!wrong.empty()) {
    spdlog::warn("compile cache: {} is removed: {}", path, wrong);
    unlink(path.c_str());
    return std::nullopt;
  }
  // The time of the last use; file systems seldom keep that of the last access.
  futimens(file.descriptor(), nullptr);
  return program;
}

absl::Status ProgramDirectory::Write(const StoredProgram& program) {
  const std::string body = program.SerializeAsString();
  const auto bytes = static_cast<int64_t>(kFormat.size() + Digest::kBytes + body.size());
  if (bytes > max_bytes_ / 2) {
    return absl::OutOfRangeError(absl::StrCat("a program of ", bytes, " bytes is too large to be kept"));
  }
  const std::string file = FileOf(program.key());
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  if (error) return absl::UnavailableError(absl::StrCat("making ", file, ": ", error.message()));
  RETURN_IF_ERROR(WriteFile(file, Digest().Add(body).Finish(), body));
  Shrink(bytes);
  return absl::OkStatus();
}

absl::Status ProgramDirectory::WriteFile(const std::string& file, absl::string_view checksum,
                                         absl::string_view body) const {
  static std::atomic<int> count{0};
  // Processes on other machines may have the same number.
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  const std::string unfinished = absl::StrCat(file, ".", host, ".", getpid(), ".", ++count, kUnfinishedSuffix);
  File out(unfinished, O_WRONLY | O_CREAT | O_EXCL);
  bool written = out.ok() && WriteAll(out.descriptor(), kFormat) && WriteAll(out.descriptor(), checksum) &&
                 WriteAll(out.descriptor(), body);
  const int write_error = errno;
  if (out.ok() && !out.Close()) written = false;
  if (written && rename(unfinished.c_str(), file.c_str()) == 0) return absl::OkStatus();
  const int error = written ? errno : write_error;
  unlink(unfinished.c_str());
  return absl::ErrnoToStatus(error, absl::StrCat("writing ", file));
}

ProgramDirectory::Usage ProgramDirectory::Measure() const {
  Usage usage;
  for (const KnownFile& file : ListFiles(path_)) {
    if (IsProgram(file)) ++usage.programs;
    usage.bytes += file.bytes;
  }
  return usage;
}

void ProgramDirectory::Shrink(int64_t bytes_written) {
  absl::MutexLock lock(&mu_);
  written_since_ += bytes_written;
  // Others may write as well: one looks again before all of one's share is used up.
  const bool may_be_full = known_bytes_ < 0 || known_bytes_ + written_since_ > max_bytes_;
  if (!may_be_full && written_since_ < max_bytes_ / 16) return;
  known_bytes_ = Measure().bytes;
  written_since_ = 0;
  if (known_bytes_ <= max_bytes_) return;
  RemoveLeastRecentlyUsed();
  known_bytes_ = Measure().bytes;
}

void ProgramDirectory::RemoveLeastRecentlyUsed() {
  const File lock(absl::StrCat(path_, "/lock"), O_RDWR | O_CREAT);
  // Whoever holds it is doing just that.
  if (!lock.ok() || flock(lock.descriptor(), LOCK_EX | LOCK_NB) != 0) return;
  std::vector<KnownFile> files = ListFiles(path_);
  std::sort(files.begin(), files.end(), [](const KnownFile& a, const KnownFile& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  int64_t bytes = 0, removed_bytes = 0, removed = 0;
  for (const KnownFile& file : files) bytes += file.bytes;
  const std::time_t now = std::time(nullptr);
  const auto goal = static_cast<int64_t>(static_cast<double>(max_bytes_) * kKeptShare);
  for (const KnownFile& file : files) {
    const bool abandoned = file.path.extension() == kUnfinishedSuffix && file.used.tv_sec + kUnfinishedSeconds < now;
    if (!abandoned && (!IsProgram(file) || bytes - removed_bytes <= goal)) continue;
    if (unlink(file.path.c_str()) != 0) continue;
    removed_bytes += file.bytes;
    ++removed;
  }
  spdlog::info("compile cache: {} programs ({} bytes) that were not used for the longest time are removed", removed,
               removed_bytes);
}

}  // namespace openpathways::compiler
