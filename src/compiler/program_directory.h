// Compiled programs in files: a cache that outlives its process and that several processes may share.
//
// A file is named after the digest of all that its program depends on, made under another name and renamed: whoever
// reads sees nothing or a whole file. It carries a checksum, so that a file that was cut off, damaged or put there by
// somebody else is found out, removed and treated as missing. Reading marks a file as used; when all of them are larger
// than allowed, those that were used least recently are removed (by one process at a time).
//
// Whoever can write into the directory decides what the workers run: it must belong to the user of the cluster.
#ifndef OPENPATHWAYS_COMPILER_PROGRAM_DIRECTORY_H_
#define OPENPATHWAYS_COMPILER_PROGRAM_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "compiler/stored_program.pb.h"

namespace openpathways::compiler {

// Thread-safe. Its calls read and write files: not for threads that must not wait.
class ProgramDirectory {
 public:
  // The directory is made when it is needed.
  ProgramDirectory(std::string path, int64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}

  // `key`: a digest. A file that is no program of this key is removed, with a line in the log. Files that cannot be
  // read for another reason are logged too and count as missing.
  std::optional<StoredProgram> Read(const std::string& key);
  // Replaces what is there. OUT_OF_RANGE for a program that takes more than half of the allowed bytes; others if the
  // directory cannot be written.
  absl::Status Write(const StoredProgram& program);

  // Of all programs that are there now, whoever wrote them.
  struct Usage {
    int64_t programs = 0;
    int64_t bytes = 0;
  };
  Usage Measure() const;

  const std::string& path() const { return path_; }
  std::string FileOf(const std::string& key) const;

 private:
  absl::Status WriteFile(const std::string& file, absl::string_view checksum, absl::string_view body) const;
  // Removes what is too much if the bytes written since the last look could be.
  void Shrink(int64_t bytes_written);
  void RemoveLeastRecentlyUsed();

  const std::string path_;
  const int64_t max_bytes_;
  absl::Mutex mu_;
  // What there may be at most: what was found at the last look, and what has been written here since. -1: never looked.
  int64_t known_bytes_ ABSL_GUARDED_BY(mu_) = -1;
  int64_t written_since_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_PROGRAM_DIRECTORY_H_
