// The sessions of this server, by the ids with which the calls for host buffers name them.
#ifndef OPENPATHWAYS_PROXY_SESSION_REGISTRY_H_
#define OPENPATHWAYS_PROXY_SESSION_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proxy/session.h"

namespace openpathways::proxy {

// Thread-safe.
class SessionRegistry {
 public:
  // A random number, so that one client cannot guess the session of another; never 0.
  uint64_t NewId();
  void Add(std::shared_ptr<Session> session);
  void Remove(uint64_t id);
  absl::StatusOr<std::shared_ptr<HostBufferTable>> FindHostBuffers(uint64_t id) const;  // NOT_FOUND
  std::vector<std::shared_ptr<Session>> All() const;
  int size() const;

 private:
  mutable absl::Mutex mu_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_SESSION_REGISTRY_H_
