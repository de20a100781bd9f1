// User contexts: what the client remembers of the Python code that made a request, known here by a number only.
//
// The client keeps a traceback alive for every request that carried an id until the server has reported that id as
// destroyed, once per request. Reporting one too often aborts the client, so the count is kept by construction: each
// request makes one UserContext, everything that may still mention its id shares it, and the destructor reports it.
#ifndef OPENPATHWAYS_PROXY_USER_CONTEXT_H_
#define OPENPATHWAYS_PROXY_USER_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace openpathways::proxy {

// Ids of one session that died and have not been reported yet. Thread-safe.
class DestroyedContexts {
 public:
  void Add(uint64_t id);
  std::vector<uint64_t> TakeAll();

 private:
  absl::Mutex mu_;
  std::vector<uint64_t> ids_ ABSL_GUARDED_BY(mu_);
};

class UserContext {
 public:
  UserContext(uint64_t id, std::shared_ptr<DestroyedContexts> destroyed) : id_(id), destroyed_(std::move(destroyed)) {}
  ~UserContext() { destroyed_->Add(id_); }
  UserContext(const UserContext&) = delete;
  UserContext& operator=(const UserContext&) = delete;

  uint64_t id() const { return id_; }

 private:
  const uint64_t id_;
  const std::shared_ptr<DestroyedContexts> destroyed_;
};
// Null for a request without an id.
using UserContextRef = std::shared_ptr<const UserContext>;

// `status` with the context's id as payload, from which the client finds the traceback to show. Unchanged if it is OK
// or names a context already.
absl::Status AttachUserContext(absl::Status status, const UserContextRef& context);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_USER_CONTEXT_H_
