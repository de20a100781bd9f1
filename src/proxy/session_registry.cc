#include "proxy/session_registry.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace openpathways::proxy {

uint64_t SessionRegistry::NewId() {
  std::random_device random;
  absl::MutexLock lock(&mu_);
  while (true) {
    const uint64_t id = (uint64_t{random()} << 32) | random();
    if (id != 0 && !sessions_.contains(id)) return id;
  }
}

void SessionRegistry::Add(std::shared_ptr<Session> session) {
  absl::MutexLock lock(&mu_);
  const uint64_t id = session->id();
  sessions_.emplace(id, std::move(session));
}

void SessionRegistry::Remove(uint64_t id) {
  std::shared_ptr<Session> removed;  // dies after the lock
  absl::MutexLock lock(&mu_);
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  removed = std::move(it->second);
  sessions_.erase(it);
}

absl::StatusOr<std::shared_ptr<HostBufferTable>> SessionRegistry::FindHostBuffers(uint64_t id) const {
  absl::MutexLock lock(&mu_);
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return absl::NotFoundError(absl::StrCat("There is no session ", id));
  return it->second->host_buffers();
}

std::vector<std::shared_ptr<Session>> SessionRegistry::All() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [id, session] : sessions_) all.push_back(session);
  return all;
}

int SessionRegistry::size() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int>(sessions_.size());
}

}  // namespace openpathways::proxy
