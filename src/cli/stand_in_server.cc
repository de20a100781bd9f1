// Stands in for pathways_worker and pathways_proxy_server in the command line's tests: registers or serves health
// checks like them and does nothing else. Which one it is follows from its name. STAND_IN_FAULT makes it misbehave:
//   exit:NAME    NAME ("worker-0-1", "proxy") prints a line and exits with 3
//   hang:NAME    NAME never becomes ready
//   deaf         every server ignores SIGTERM
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/flags.h"
#include "base/logging.h"
#include "grpcpp/grpcpp.h"
#include "resource_manager/worker_registration.h"
#include "serving/health.grpc.pb.h"

namespace openpathways::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool deaf = false;  // set once, before any use

void WaitForSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  int signal = 0;
  do {
    sigwait(&signals, &signal);
  } while (deaf);
}

class HealthService : public grpc::health::v1::Health::Service {
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse* response) override {
    response->set_status(grpc::health::v1::HealthCheckResponse::SERVING);
    return grpc::Status::OK;
  }
};

int RunProxy(int64_t port) {
  HealthService health;
  grpc::ServerBuilder builder;
  builder.RegisterService(&health);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("[::]:" + std::to_string(port), grpc::InsecureServerCredentials());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  spdlog::info("stand-in proxy serving");
  WaitForSignal();
  return 0;
}

int RunWorker(int64_t port, const std::string& rm_address) {
  resource_manager::WorkerHello hello;
  hello.set_slice(std::stoi(Environment("MEGASCALE_SLICE_ID")));
  hello.set_host(std::stoi(Environment("JOB_COMPLETION_INDEX")));
  hello.set_server_port(static_cast<int>(port));
  resource_manager::WorkerRegistration::Callbacks callbacks;
  callbacks.on_registered = [](const resource_manager::WorkerAccepted& accepted) {
    spdlog::info("stand-in worker registered");
    resource_manager::WorkerReady ready;
    ready.set_num_devices(accepted.num_devices());
    ready.set_platform("cpu");
    return ready;
  };
  const auto registration = resource_manager::WorkerRegistration::Start(rm_address, hello, std::move(callbacks));
  WaitForSignal();
  return 0;
}

int Main(int argc, char** argv) {
  const std::string fault = Environment("STAND_IN_FAULT");
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  int64_t port = 0;
  std::string rm_address, plugin;
  FlagSet flags;
  flags.Add("server_port", &port, "");
  flags.Add("resource_manager_address", &rm_address, "");
  flags.Add("plugin", &plugin, "");
  if (!flags.Parse(argc, argv).ok()) return 2;

  const bool is_proxy = std::string(argv[0]).ends_with("proxy_server");
  const std::string name =
      is_proxy ? "proxy" : "worker-" + Environment("MEGASCALE_SLICE_ID") + "-" + Environment("JOB_COMPLETION_INDEX");
  if (fault == "exit:" + name) {
    std::fprintf(stderr, "the stand-in was told to fail\n");
    return 3;
  }
  if (fault == "hang:" + name) {
    WaitForSignal();
    return 0;
  }
  deaf = fault == "deaf";
  return is_proxy ? RunProxy(port) : RunWorker(port, rm_address);
}

}  // namespace
}  // namespace openpathways::cli

int main(int argc, char** argv) { return openpathways::cli::Main(argc, argv); }
