#include "cli/server_client.h"

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "resource_manager/resource_manager.grpc.pb.h"
#include "serving/health.grpc.pb.h"

namespace openpathways::cli {
namespace {

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a server of this machine
  // A server that is starting refuses connections; the next question must try again, not report the last refusal.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

absl::StatusOr<resource_manager::ClusterStatus> AskResourceManager(const std::string& address, absl::Duration timeout) {
  auto stub = resource_manager::ResourceManager::NewStub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  resource_manager::ClusterStatus status;
  const grpc::Status result = stub->GetStatus(&context, resource_manager::GetStatusRequest(), &status);
  if (!result.ok()) return FromGrpc(result);
  return status;
}

absl::Status CheckServing(const std::string& address, absl::Duration timeout) {
  auto stub = grpc::health::v1::Health::NewStub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::health::v1::HealthCheckResponse response;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("ready");
  const grpc::Status result = stub->Check(&context, request, &response);
  if (!result.ok()) return FromGrpc(result);
  if (response.status() != grpc::health::v1::HealthCheckResponse::SERVING) {
    return absl::UnavailableError(absl::StrCat(address, " answers that it does not serve yet"));
  }
  return absl::OkStatus();
}

}  // namespace openpathways::cli
