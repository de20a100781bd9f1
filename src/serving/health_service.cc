#include "serving/health_service.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "serving/health.grpc.pb.h"

namespace openpathways::serving {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Answers a call, at the latest when it is dropped.
class PendingAnswer {
 public:
  PendingAnswer(grpc::ServerUnaryReactor* reactor, HealthCheckResponse* response)
      : reactor_(reactor), response_(response) {}
  PendingAnswer(PendingAnswer&& other) noexcept
      : reactor_(std::exchange(other.reactor_, nullptr)), response_(other.response_) {}
  PendingAnswer& operator=(PendingAnswer&&) = delete;
  ~PendingAnswer() { Give(false); }

  void Give(bool serving) {
    grpc::ServerUnaryReactor* reactor = std::exchange(reactor_, nullptr);
    if (reactor == nullptr) return;
    response_->set_status(serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
    reactor->Finish(grpc::Status::OK);
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
  HealthCheckResponse* response_;
};

}  // namespace

class HealthService::Impl : public grpc::health::v1::Health::CallbackService {
 public:
  void Set(const std::string& service, HealthService::Check check) {
    absl::MutexLock lock(&mu_);
    checks_[service] = std::move(check);
  }

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const HealthCheckRequest* request,
                                  HealthCheckResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    HealthService::Check check;
    {
      absl::MutexLock lock(&mu_);
      if (auto found = checks_.find(request->service()); found != checks_.end()) check = found->second;
    }
    if (!check) {
      reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND,
                                   absl::StrCat("no service '", request->service(), "'; there are '' and 'ready'")));
      return reactor;
    }
    check([answer = PendingAnswer(reactor, response)](bool serving) mutable { answer.Give(serving); });
    return reactor;
  }

 private:
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, HealthService::Check> checks_ ABSL_GUARDED_BY(mu_);
};

HealthService::HealthService() : impl_(std::make_unique<Impl>()) {}
HealthService::~HealthService() = default;

void HealthService::Set(const std::string& service, Check check) { impl_->Set(service, std::move(check)); }
grpc::Service* HealthService::service() { return impl_.get(); }

}  // namespace openpathways::serving
