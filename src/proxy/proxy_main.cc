// pathways_proxy_server: see server.h. Takes the flags of Pathways' proxy image.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/installation.h"
#include "base/lock_checks.h"
#include "base/logging.h"
#include "base/machine.h"
#include "base/status.h"
#include "compiler/cache_location.h"
#include "compiler/xla_flags.h"
#include "google/protobuf/stubs/logging.h"
#include "ifrt/backend.h"
#include "proxy/disk_store.h"
#include "proxy/server.h"
#include "resource_manager/address.h"
#include "serving/common_flags.h"
#include "serving/file_limit.h"
#include "serving/grpc_log.h"
#include "serving/stop_signals.h"
#include "topology/slice_topology.h"

namespace openpathways::proxy {
namespace {

constexpr absl::Duration kStopTime = absl::Milliseconds(1800);

std::string OwnAddress(int port) {
  for (const char* name : {"PATHWAYS_HEAD", "HOST_ADDRESS"}) {
    if (const std::string host = EnvironmentValue(name); !host.empty()) {
      return resource_manager::WithPort(host, port);
    }
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
  std::string virtual_slices_text;
  std::vector<topology::SliceTopology> virtual_slices;
  int64_t num_elastic_slices = 0;
  std::string scratch_location;
  std::string compilation_cache_directory = EnvironmentValue(compiler::kCacheDirectoryVariable);
  int64_t compilation_cache_mebibytes =
      EnvironmentNumber({compiler::kCacheMebibytesVariable}).value_or(compiler::kDefaultCacheMebibytes);
  std::vector<std::string> xla_flags;
  serving::CommonFlags common;
};

absl::Status ParseFlags(int argc, const char* const* argv, Flags& flags) {
  FlagSet set;
  set.Add("server_port", &flags.server_port, "port on which clients connect");
  set.Add("resource_manager_address", &flags.resource_manager_address,
          "HOST:PORT of the resource manager; $(NAME) stands for an environment variable");
  set.Add("plugin", &flags.plugin, "PJRT plugin that compiles the programs");
  set.Add("compiler", &flags.compiler, "the pathways_compiler binary");
  set.Add("virtual_slices", &flags.virtual_slices_text, "TYPE:TOPOLOGY[,...]: slices that this proxy wants");
  set.Add("num_elastic_slices", &flags.num_elastic_slices, "slices that may be missing at a time");
  set.Collect("xla_", &flags.xla_flags);
  serving::AddCommonFlags(set, flags.common);
  set.Add("compilation_cache_dir", &flags.compilation_cache_directory,
          "directory in which compiled programs are kept for later and for other proxies; \"off\": nowhere");
  set.Add("compilation_cache_mib", &flags.compilation_cache_mebibytes, "how large that may become, in MiB");
  set.Add("gcs_scratch_location", &flags.scratch_location,
          "directory for temporary files: compiled programs, if --compilation_cache_dir names no other");
  set.Ignore("sidecar_name", "colocated Python is not supported yet");
  set.Ignore("node_type", "this binary is the proxy server");
  RETURN_IF_ERROR(set.Parse(argc, argv));
  if (flags.compilation_cache_mebibytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compilation_cache_mib=", flags.compilation_cache_mebibytes, " is less than 1"));
  }
  if (flags.num_elastic_slices < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num_elastic_slices=", flags.num_elastic_slices, " is less than 0"));
  }
  if (!flags.virtual_slices_text.empty()) {
    ASSIGN_OR_RETURN(flags.virtual_slices, topology::ParseSlices(flags.virtual_slices_text, 0));
  }
  if (flags.server_port < 0 || flags.server_port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--server_port=", flags.server_port, " is no port"));
  }
  return absl::OkStatus();
}

// What protobuf has to say comes from messages of clients, who get errors for it.
void LogProtobuf(google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
  spdlog::debug("protobuf: {}", message);
}

// gRPC receives into memory from malloc, which by default gives it back to the kernel after each piece of a host buffer
// and has it zeroed again for the next: half of the time of a large transfer. Each of malloc's arenas may keep so much.
void KeepReceiveMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_ARENA_MAX, AvailableCpus() + 2);
}

void LogUnusedEnvironment() {
  serving::LogUnusedEnvironment({
      {"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "this server always speaks plain HTTP/2"},
      {"TEST_UNDECLARED_OUTPUTS_DIR", "this server always speaks plain HTTP/2"},
      {"XCLOUD_ENVIRONMENT", "all environments are alike"},
      {"TPU_MIN_LOG_LEVEL", "it is for the TPU runtime"},
  });
}

// What the flags about slices mean for this cluster.
void LogSliceFlags(const Flags& flags, const ifrt::DeviceList& devices) {
  const int num_slices = devices.back()->slice + 1;
  if (flags.num_elastic_slices > 0) {
    spdlog::info(
        "--num_elastic_slices={}: any of the {} slices may be lost, whatever that number says, and the work of "
        "the others goes on; a slice that has not come yet is waited for",
        flags.num_elastic_slices, num_slices);
    if (flags.num_elastic_slices >= num_slices) {
      spdlog::warn("--num_elastic_slices={} leaves no slice that has to be there: there are {}",
                   flags.num_elastic_slices, num_slices);
    }
  }
  if (flags.virtual_slices.empty()) return;
  if (static_cast<int>(flags.virtual_slices.size()) != num_slices) {
    spdlog::warn(
        "--virtual_slices={} names {} slices, but clients get all {} of the cluster: choosing some of them is not "
        "supported yet",
        flags.virtual_slices_text, flags.virtual_slices.size(), num_slices);
    return;
  }
  for (const ifrt::Device* device : devices) {
    const topology::SliceTopology& wanted = flags.virtual_slices[device->slice];
    if (device->kind == wanted.device_kind()) continue;
    spdlog::warn("--virtual_slices wants {} as slice {}, which is of {}", wanted.instance_type(), device->slice,
                 device->kind);
    return;
  }
  spdlog::info("--virtual_slices={}: these are the slices of the cluster", flags.virtual_slices_text);
}

int Run(const Flags& flags, const serving::StopSignals& stop_signals) {
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

  const compiler::CacheLocation cache =
      compiler::FindCacheLocation(flags.compilation_cache_directory, flags.scratch_location);
  if (!cache.reason.empty()) {
    spdlog::warn("{}", cache.reason);
  } else if (cache.directory.empty()) {
    spdlog::info(
        "the compile cache is in memory only: neither --compilation_cache_dir nor --gcs_scratch_location "
        "names a directory, or the cache is off");
  } else {
    spdlog::info("the compile cache is in {}", cache.directory);
  }
  std::unique_ptr<ifrt::Backend> backend;
  std::atomic<bool> ready{false}, failed{false};
  std::thread creator([&] {
    absl::StatusOr<std::unique_ptr<ifrt::Backend>> created =
        ifrt::Backend::Create({.resource_manager_address = resource_manager,
                               .proxy_address = OwnAddress((*server)->port()),
                               .plugin = flags.plugin,
                               .compiler_binary = flags.compiler,
                               .compilation_cache_directory = cache.directory,
                               .compilation_cache_bytes = flags.compilation_cache_mebibytes << 20});
    if (!created.ok()) {
      spdlog::error("the cluster cannot be used: {}", created.status().ToString());
      failed = true;
      kill(getpid(), SIGTERM);
      return;
    }
    backend = *std::move(created);
    ready = true;
    (*server)->SetBackend(backend.get());
    LogSliceFlags(flags, backend->devices());
    spdlog::info("{} devices of platform {} ({})", backend->devices().size(), backend->platform_name(),
                 backend->platform_version());
    spdlog::info("IFRT proxy server started with status OK");
  });

  const int signal = stop_signals.Wait();
  const int code = failed ? 1 : serving::StopSignals::ExitCode(signal);
  serving::ExitWithin(kStopTime, code);
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
  const serving::StopSignals stop_signals;
  proxy::KeepReceiveMemory();
  SkipLockChecks();
  InitLogging(argc, argv);
  serving::RouteGrpcLog();
  serving::RaiseFileLimit();
  google::protobuf::SetLogHandler(proxy::LogProtobuf);
  proxy::Flags flags;
  if (const absl::Status parsed = proxy::ParseFlags(argc, argv, flags); !parsed.ok()) {
    spdlog::error("{}", std::string(parsed.message()));
    return 1;
  }
  serving::ApplyCommonFlags(flags.common);
  proxy::LogUnusedEnvironment();
  for (const std::string& flag : compiler::SetXlaFlags(flags.compiler, flags.plugin, flags.xla_flags)) {
    spdlog::warn("compiler flag {} is ignored: the plugin does not know it", flag);
  }
  return proxy::Run(flags, stop_signals);
}
