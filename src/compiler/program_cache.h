// Compiled programs by what they were compiled from, the least recently used thrown away first. Thread-safe.
#ifndef OPENPATHWAYS_COMPILER_PROGRAM_CACHE_H_
#define OPENPATHWAYS_COMPILER_PROGRAM_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "compiler/compiler.h"

namespace openpathways::compiler {

class ProgramCache {
 public:
  // `max_bytes` counts keys, executables and what they were compiled from.
  explicit ProgramCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // nullptr if it is not there.
  CompiledProgramRef Find(const std::string& key);
  void Insert(std::string key, CompiledProgramRef program);

  size_t bytes() const;

 private:
  struct Entry {
    std::string key;
    CompiledProgramRef program;
    size_t bytes() const {
      const size_t source = program->source == nullptr ? 0 : program->source->size();
      return key.size() + program->serialized_executable.size() + source;
    }
  };

  const size_t max_bytes_;
  mutable absl::Mutex mu_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);  // most recently used first
  absl::flat_hash_map<absl::string_view, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_PROGRAM_CACHE_H_
