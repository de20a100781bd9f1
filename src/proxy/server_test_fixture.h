// For tests: a proxy server on a free port, in front of a FakeBackend.
#ifndef OPENPATHWAYS_PROXY_SERVER_TEST_FIXTURE_H_
#define OPENPATHWAYS_PROXY_SERVER_TEST_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "proxy/fake_backend.h"
#include "proxy/server.h"
#include "proxy/test_client.h"

namespace openpathways::proxy {

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override { Restart(""); }

  void Restart(const std::string& directory) {
    server_ = nullptr;
    absl::StatusOr<std::unique_ptr<ProxyServer>> server =
        ProxyServer::Start({.large_transfer_directory = directory, .unavailable_reason = "not yet"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetBackend(&backend_);
  }

  std::unique_ptr<TestClient> NewClient(int protocol_version = 25) {
    auto client = std::make_unique<TestClient>(server_->port(), protocol_version);
    client->Init();
    return client;
  }

  FakeBackend backend_;  // outlives the server
  std::unique_ptr<ProxyServer> server_;
};

inline int Code(const wire::IfrtResponse& response) {
  return response.has_response_metadata() ? static_cast<int>(response.response_metadata().status().code()) : -1;
}
inline std::string Message(const wire::IfrtResponse& response) {
  return response.response_metadata().status().message();
}
// The id of the user context that an error names.
inline std::string ContextOf(const wire::IfrtResponse& response) {
  const auto& payload = response.response_metadata().status().payload();
  auto it = payload.find("type.googleapis.com/ifrt.UserContext");
  return it == payload.end() ? "" : it->second;
}
inline wire::IfrtRequest WithContext(wire::IfrtRequest request, uint64_t id) {
  request.mutable_request_metadata()->set_user_context_id(id);
  return request;
}

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_SERVER_TEST_FIXTURE_H_
