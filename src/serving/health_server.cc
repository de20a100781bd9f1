#include "serving/health_server.h"

#include <fcntl.h>

#include <chrono>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "grpcpp/server_posix.h"

namespace openpathways::serving {
namespace {

class GrpcHealthServer : public HealthServer {
 public:
  explicit GrpcHealthServer(std::unique_ptr<grpc::Server> server) : server_(std::move(server)) {}
  ~GrpcHealthServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  void Serve(int fd) override {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);  // gRPC insists
    grpc::AddInsecureChannelFromFd(server_.get(), fd);
  }

 private:
  const std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(HealthService& service) {
  grpc::ServerBuilder builder;
  builder.RegisterService(service.service());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::ResourceExhaustedError("cannot start the server for health checks");
  return std::make_unique<GrpcHealthServer>(std::move(server));
}

}  // namespace openpathways::serving
