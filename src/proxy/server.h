// The proxy server: what JAX clients connect to.
#ifndef OPENPATHWAYS_PROXY_SERVER_H_
#define OPENPATHWAYS_PROXY_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ifrt/backend.h"
#include "proxy/session_registry.h"

namespace openpathways::proxy {

// Listens from Start on, but tells clients to come again, and health checks that it is not "ready" (see
// serving/health_service.h), until it has a backend. Thread-safe. The destructor shuts down.
class ProxyServer {
 public:
  struct Options {
    int port = 0;                               // 0: any free port
    std::string large_transfer_directory = {};  // shared with clients; empty: none
    std::string unavailable_reason = {};        // told to clients until there is a backend
  };
  // UNAVAILABLE if the port is in use.
  static absl::StatusOr<std::unique_ptr<ProxyServer>> Start(Options options);

  virtual ~ProxyServer() = default;
  virtual int port() const = 0;
  // `backend` must live until Shutdown has returned.
  virtual void SetBackend(ifrt::Backend* backend) = 0;
  virtual const SessionRegistry& sessions() const = 0;
  // Ends all sessions and returns when nothing of them is left, within about a second. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_SERVER_H_
