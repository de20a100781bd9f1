#include <sys/socket.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "serving/health.grpc.pb.h"
#include "serving/health_server.h"
#include "serving/health_service.h"

namespace openpathways::serving {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Over a connection that the health server was handed, as a worker does it.
class HealthTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HealthServer::Start(health_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = Connect();
  }

  std::unique_ptr<Health::Stub> Connect() {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    server_->Serve(sockets[0]);
    return Health::NewStub(grpc::CreateInsecureChannelFromFd("server", sockets[1]));
  }

  grpc::StatusCode Check(const std::string& service, HealthCheckResponse& response, int millis = 60'000) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(millis));
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, &response).error_code();
  }

  HealthService health_;
  std::unique_ptr<HealthServer> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthTest, AnswersAsTheCheckDoes) {
  bool ready = false;
  health_.Set(kAlive, [](HealthService::Answer answer) { answer(true); });
  health_.Set(kReady, [&](HealthService::Answer answer) { answer(ready); });
  HealthCheckResponse response;
  EXPECT_EQ(Check("", response), grpc::StatusCode::OK);
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  EXPECT_EQ(Check("ready", response), grpc::StatusCode::OK);
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  ready = true;
  EXPECT_EQ(Check("ready", response), grpc::StatusCode::OK);
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  EXPECT_EQ(Check("other", response), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthTest, ManyConnectionsComeAndGo) {
  health_.Set(kAlive, [](HealthService::Answer answer) { answer(true); });
  for (int i = 0; i < 50; ++i) {
    stub_ = Connect();
    HealthCheckResponse response;
    ASSERT_EQ(Check("", response), grpc::StatusCode::OK);
  }
}

TEST_F(HealthTest, AStuckThreadGivesNoAnswer) {
  HealthService::Answer never;
  health_.Set(kAlive, [&](HealthService::Answer answer) { never = std::move(answer); });
  HealthCheckResponse response;
  EXPECT_EQ(Check("", response, 200), grpc::StatusCode::DEADLINE_EXCEEDED);
  never = nullptr;  // the server waits for it
}

TEST_F(HealthTest, ADroppedCheckIsNotServing) {
  health_.Set(kAlive, [](HealthService::Answer) {});
  HealthCheckResponse response;
  EXPECT_EQ(Check("", response), grpc::StatusCode::OK);
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
}

}  // namespace
}  // namespace openpathways::serving
