// pathways_proxy_server: see server.h. Takes the flags of Pathways' proxy image.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/installation.h"
#include "base/logging.h"
#include "google/protobuf/stubs/logging.h"
#include "ifrt/backend.h"
#include "proxy/disk_store.h"
#include "proxy/server.h"
#include "resource_manager/address.h"

namespace openpathways::proxy {
namespace {

constexpr auto kExitDeadline = std::chrono::milliseconds(1800);

std::string OwnAddress(int port) {
  for (const char* name : {"PATHWAYS_HEAD", "HOST_ADDRESS"}) {
    if (const char* host = std::getenv(name); host != nullptr && *host != '\0') return absl::StrCat(host, ":", port);
  }
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", port);
}

struct Flags {
  int64_t server_port = 29000;
  std::string resource_manager_address;
  std::string plugin = DefaultPluginPath();
  std::string compiler = BinaryDirectory() + "/pathways_compiler";
  std::string virtual_slices;
  int64_t num_elastic_slices = 0;
  std::string sidecar_name;
};

absl::Status ParseFlags(int argc, const char* const* argv, Flags& flags) {
  FlagSet set;
  set.Add("server_port", &flags.server_port, "port on which clients connect");
  set.Add("resource_manager_address", &flags.resource_manager_address,
          "HOST:PORT of the resource manager; $(NAME) stands for an environment variable");
  set.Add("plugin", &flags.plugin, "PJRT plugin that compiles the programs");
  set.Add("compiler", &flags.compiler, "the pathways_compiler binary");
  set.Add("virtual_slices", &flags.virtual_slices, "slices that this proxy wants; all of the cluster are used");
  set.Add("num_elastic_slices", &flags.num_elastic_slices,
          "slices that may be lost; here any slice may be lost without ending the others' work");
  set.Add("sidecar_name", &flags.sidecar_name, "where colocated Python runs; not supported yet");
  for (const char* name : {"gcs_scratch_location", "enable_metrics_collection", "cloud_pathways_external_sidecar_port",
                           "cloud_pathways_external_sidecar_connect_timeout", "cloud_pathways_sidecar_shm_directory"}) {
    set.Ignore(name);
  }
  const absl::Status parsed = set.Parse(argc, argv);
  if (!parsed.ok()) return parsed;
  for (const std::string& flag : set.unknown()) {
    if (absl::StartsWith(flag, "--xla_")) spdlog::warn("{} is not passed on to the compiler", flag);
  }
  if (!flags.virtual_slices.empty()) spdlog::warn("--virtual_slices is not supported yet: all slices are used");
  if (flags.server_port < 0 || flags.server_port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--server_port=", flags.server_port, " is no port"));
  }
  return absl::OkStatus();
}

// What protobuf has to say comes from messages of clients, who get errors for it.
void LogProtobuf(google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
  spdlog::debug("protobuf: {}", message);
}

// Ends the process even if something that is being torn down does not return.
void ExitSoon(int code) {
  std::thread([code] {
    std::this_thread::sleep_for(kExitDeadline);
    spdlog::warn("the shutdown took too long; exiting");
    std::_Exit(code);
  }).detach();
}

int Run(const Flags& flags, const sigset_t& signals) {
  const std::string resource_manager = resource_manager::ResolveResourceManagerAddress(flags.resource_manager_address);
  ProxyServer::Options options;
  options.port = static_cast<int>(flags.server_port);
  options.large_transfer_directory = DiskStore::DirectoryFromEnvironment();
  options.unavailable_reason =
      absl::StrCat("The proxy server waits for the resource manager at ", resource_manager, " to tell the cluster");
  absl::StatusOr<std::unique_ptr<ProxyServer>> server = ProxyServer::Start(std::move(options));
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return 1;
  }
  spdlog::info("listening on port {}, resource manager at {}", (*server)->port(), resource_manager);

  std::unique_ptr<ifrt::Backend> backend;
  std::atomic<bool> ready{false}, failed{false};
  std::thread creator([&] {
    absl::StatusOr<std::unique_ptr<ifrt::Backend>> created =
        ifrt::Backend::Create({.resource_manager_address = resource_manager,
                               .proxy_address = OwnAddress((*server)->port()),
                               .plugin = flags.plugin,
                               .compiler_binary = flags.compiler});
    if (!created.ok()) {
      spdlog::error("the cluster cannot be used: {}", created.status().ToString());
      failed = true;
      kill(getpid(), SIGTERM);
      return;
    }
    backend = *std::move(created);
    ready = true;
    (*server)->SetBackend(backend.get());
    spdlog::info("{} devices of platform {} ({})", backend->devices().size(), backend->platform_name(),
                 backend->platform_version());
    spdlog::info("IFRT proxy server started with status OK");
  });

  int signal = 0;
  sigwait(&signals, &signal);
  const int code = failed ? 1 : 0;
  spdlog::info("{}: shutting down", strsignal(signal));
  ExitSoon(code);
  (*server)->Shutdown();
  // Waiting for the resource manager cannot be broken off, and nothing depends on it.
  if (!ready && !failed) std::_Exit(code);
  creator.join();
  server->reset();
  backend.reset();
  spdlog::info("shut down");
  return code;
}

}  // namespace
}  // namespace openpathways::proxy

int main(int argc, char** argv) {
  using namespace openpathways;  // NOLINT: main belongs to no namespace
  // Signals are waited for by the main thread; all others, started later, inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  InitLogging(argc, argv);
  google::protobuf::SetLogHandler(proxy::LogProtobuf);
  proxy::Flags flags;
  if (const absl::Status parsed = proxy::ParseFlags(argc, argv, flags); !parsed.ok()) {
    spdlog::error("{}", std::string(parsed.message()));
    return 1;
  }
  return proxy::Run(flags, signals);
}
