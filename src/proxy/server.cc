#include "proxy/server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proxy/service.h"
#include "serving/health_service.h"
#include "spdlog/spdlog.h"

namespace openpathways::proxy {
namespace {

constexpr auto kShutdownGrace = std::chrono::milliseconds(700);

class GrpcProxyServer : public ProxyServer {
 public:
  explicit GrpcProxyServer(Service::Options options) : service_(std::move(options)) {
    // Alive: the threads that serve clients answer, and so do those that speak with the workers.
    health_.Set(serving::kAlive, [this](serving::HealthService::Answer answer) {
      const absl::StatusOr<ifrt::Backend*> backend = service_.backend();
      if (!backend.ok()) return answer(true);
      (*backend)->Ping([answer = std::move(answer)]() mutable { answer(true); });
    });
    // Ready: clients get devices.
    health_.Set(serving::kReady, [this](serving::HealthService::Answer answer) { answer(service_.backend().ok()); });
  }
  ~GrpcProxyServer() override { Shutdown(); }

  absl::Status Listen(int port, const std::string& unavailable_reason) {
    service_.SetUnavailable(absl::UnavailableError(unavailable_reason));
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    builder.RegisterService(health_.service());
    builder.AddListeningPort(absl::StrCat("[::]:", port), grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.SetMaxSendMessageSize(-1);
    // Two servers on one port would each get some of a client's connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // A client opens one stream per host buffer, thousands at once, and gives up the session if one is refused.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, std::numeric_limits<int>::max());
    builder.AddChannelArgument("grpc.server.max_pending_requests", std::numeric_limits<int>::max());
    builder.AddChannelArgument("grpc.server.max_pending_requests_hard_limit", std::numeric_limits<int>::max());
    // Clients whose machine vanished are noticed, however quiet their session was.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 120'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on port ", port, "; is it in use?"));
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  const SessionRegistry& sessions() const override { return service_.sessions(); }

  void SetBackend(ifrt::Backend* backend) override { service_.SetBackend(backend); }

  void Shutdown() override {
    absl::MutexLock lock(&shutdown_mu_);
    if (server_ == nullptr) return;
    const absl::Status reason = absl::NotFoundError("The proxy server is shutting down");
    service_.SetUnavailable(absl::UnavailableError(reason.message()));
    service_.CloseSessions(reason);
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
    server_.reset();
  }

 private:
  Service service_;
  serving::HealthService health_;
  int port_ = 0;
  absl::Mutex shutdown_mu_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProxyServer>> ProxyServer::Start(Options options) {
  auto server = std::make_unique<GrpcProxyServer>(
      Service::Options{.large_transfer_directory = std::move(options.large_transfer_directory)});
  const absl::Status listening = server->Listen(options.port, options.unavailable_reason);
  if (!listening.ok()) return listening;
  return server;
}

}  // namespace openpathways::proxy
