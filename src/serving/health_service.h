// gRPC's standard health checking (grpc.health.v1), as Kubernetes' probes and `pathways up` ask it. All servers know
// two services: "" is alive, "ready" can be used by others.
//
// An answer comes from what is asked about: a check passes through the threads that it vouches for, and if they are
// stuck there is no answer, which a probe takes for a failure.
#ifndef OPENPATHWAYS_SERVING_HEALTH_SERVICE_H_
#define OPENPATHWAYS_SERVING_HEALTH_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "grpcpp/impl/service_type.h"

namespace openpathways::serving {

inline constexpr char kAlive[] = "";
inline constexpr char kReady[] = "ready";

// Thread-safe. Outlives the server that it is registered at.
class HealthService {
 public:
  // To be called once, on any thread; dropped uncalled it means "not serving".
  using Answer = absl::AnyInvocable<void(bool serving)>;
  using Check = std::function<void(Answer answer)>;

  HealthService();
  ~HealthService();

  // Replaces the check of that service. Of one that has none: NOT_FOUND.
  void Set(const std::string& service, Check check);

  grpc::Service* service();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace openpathways::serving

#endif  // OPENPATHWAYS_SERVING_HEALTH_SERVICE_H_
