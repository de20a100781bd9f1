#include "compiler/program_cache.h"

#include <utility>

namespace openpathways::compiler {

CompiledProgramRef ProgramCache::Find(const std::string& key) {
  absl::MutexLock lock(&mu_);
  auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->program;
}

void ProgramCache::Insert(std::string key, CompiledProgramRef program) {
  absl::MutexLock lock(&mu_);
  if (by_key_.contains(key)) return;
  entries_.push_front(Entry{std::move(key), std::move(program)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += entries_.front().bytes();
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes();
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

size_t ProgramCache::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

}  // namespace openpathways::compiler
