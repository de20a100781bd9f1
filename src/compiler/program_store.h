// The persistent cache as the compiler sees it: answers come later, from threads of its own, and nothing of it ever
// fails a compile.
#ifndef OPENPATHWAYS_COMPILER_PROGRAM_STORE_H_
#define OPENPATHWAYS_COMPILER_PROGRAM_STORE_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "compiler/compiler.h"
#include "compiler/program_directory.h"

namespace openpathways::compiler {

// A thread that does one thing after the other. What has been posted is done before it goes.
class TaskThread {
 public:
  explicit TaskThread(const char* name);
  ~TaskThread();
  void Post(absl::AnyInvocable<void()> task);

 private:
  void Run();

  absl::Mutex mu_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Thread-safe.
class ProgramStore {
 public:
  struct Options {
    std::string directory;
    int64_t max_bytes = 0;
    std::string compiler_binary;
    std::string plugin;
  };
  explicit ProgramStore(Options options);

  // `key`: digest of program and options. `found` runs once, on another thread.
  void Find(std::string key, absl::AnyInvocable<void(std::optional<StoredProgram>)> found);
  void Insert(std::string key, CompiledProgramRef program);

 private:
  // Digest of `key` and of all else that the result depends on: the compiler and its rewriting of programs, the plugin,
  // flags of XLA, and the processor that code is made for. Empty if these are not known.
  std::string FullKey(const std::string& key);
  void Write(const std::string& key, const CompiledProgram& program);

  const Options options_;
  ProgramDirectory directory_;
  std::once_flag once_;
  std::string identity_;  // set by the first FullKey
  bool writable_ = true;  // of the writer's thread: what was logged last
  TaskThread writer_;
  TaskThread reader_;
};

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_PROGRAM_STORE_H_
