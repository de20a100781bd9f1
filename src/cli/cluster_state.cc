#include "cli/cluster_state.h"

#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace openpathways::cli {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;  // of state.json

const std::pair<Role, const char*> kRoleNames[] = {
    {Role::kResourceManager, "resource_manager"}, {Role::kProxy, "proxy"}, {Role::kWorker, "worker"}};

const char* RoleName(Role role) {
  for (const auto& [r, name] : kRoleNames) {
    if (r == role) return name;
  }
  return "";
}

json ToJson(const ServerRecord& server) {
  return {{"role", RoleName(server.role)}, {"slice", server.slice},     {"host", server.host},
          {"port", server.port},           {"pid", server.process.pid}, {"start_ticks", server.process.start_ticks}};
}

ServerRecord ServerFromJson(const json& j) {
  ServerRecord server;
  const std::string role = j.at("role");
  const auto* named = std::find_if(std::begin(kRoleNames), std::end(kRoleNames),
                                   [&](const auto& entry) { return role == entry.second; });
  if (named == std::end(kRoleNames)) throw json::other_error::create(501, "unknown role " + role, &j);
  server.role = named->first;
  server.slice = j.at("slice");
  server.host = j.at("host");
  server.port = j.at("port");
  server.process.pid = j.at("pid");
  server.process.start_ticks = j.at("start_ticks");
  return server;
}

json ToJson(const ClusterState& state) {
  json servers = json::array();
  for (const ServerRecord& server : state.servers) servers.push_back(ToJson(server));
  return {{"format", kFormat},
          {"name", state.name},
          {"instance_types", state.shape.instance_types},
          {"proxy_port", state.shape.proxy_port},
          {"plugin", state.shape.plugin},
          {"compilation_cache", state.shape.compilation_cache},
          {"ready", state.ready},
          {"boot_id", state.boot_id},
          {"start_time_ms", state.start_time_ms},
          {"servers", servers}};
}

ClusterState StateFromJson(const json& j) {
  if (j.at("format") != kFormat) throw json::other_error::create(501, "format is not 1", &j);
  ClusterState state;
  state.name = j.at("name");
  state.shape.instance_types = j.at("instance_types").get<std::vector<std::string>>();
  state.shape.proxy_port = j.at("proxy_port");
  state.shape.plugin = j.at("plugin");
  state.shape.compilation_cache = j.value("compilation_cache", "off");
  state.ready = j.at("ready");
  state.boot_id = j.at("boot_id");
  state.start_time_ms = j.at("start_time_ms");
  for (const json& server : j.at("servers")) state.servers.push_back(ServerFromJson(server));
  return state;
}

absl::Status ErrnoStatus(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", strerror(errno)));
}

// This project's folder in the directory that the variable names, by default `in_home` in the user's. Empty if there is
// no home directory.
std::string HomeOf(const char* variable, const char* in_home) {
  // The XDG specification: a relative path is to be ignored.
  if (const char* directory = std::getenv(variable); directory != nullptr && directory[0] == '/') {
    return absl::StrCat(directory, "/openpathways");
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') {
    const passwd* user = getpwuid(getuid());
    home = user == nullptr ? nullptr : user->pw_dir;
  }
  return home == nullptr ? "" : absl::StrCat(home, in_home, "/openpathways");
}

}  // namespace

std::string ServerRecord::name() const {
  return role == Role::kWorker ? absl::StrCat("worker-", slice, "-", host) : RoleName(role);
}

std::vector<std::string> DescribeDifferences(const ClusterShape& running, const ClusterShape& wanted) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, const std::string& has, const std::string& wants) {
    if (has != wants) differences.push_back(absl::StrCat(what, ": it has ", has, ", you asked for ", wants));
  };
  compare("slices", absl::StrJoin(running.instance_types, ","), absl::StrJoin(wanted.instance_types, ","));
  compare("port", absl::StrCat(running.proxy_port), absl::StrCat(wanted.proxy_port));
  compare("plugin", running.plugin, wanted.plugin);
  compare("compilation cache", running.compilation_cache, wanted.compilation_cache);
  return differences;
}

const ServerRecord* ClusterState::Find(Role role) const {
  for (const ServerRecord& server : servers) {
    if (server.role == role) return &server;
  }
  return nullptr;
}

int ClusterState::CountAlive() const {
  if (boot_id != BootId()) return 0;  // start times count from boot: those of another boot mean nothing
  return static_cast<int>(std::count_if(servers.begin(), servers.end(),
                                        [](const ServerRecord& server) { return IsAlive(server.process); }));
}

absl::StatusOr<StateDirectory> StateDirectory::FromEnvironment() {
  const std::string home = HomeOf("XDG_STATE_HOME", "/.local/state");
  if (home.empty()) return absl::FailedPreconditionError("no home directory: set HOME or XDG_STATE_HOME");
  return StateDirectory(home);
}

std::string CacheHome() { return HomeOf("XDG_CACHE_HOME", "/.cache"); }

absl::Status StateDirectory::CheckName(const std::string& name) {
  const bool usable = !name.empty() && name.size() <= 63 && absl::ascii_isalnum(name[0]) &&
                      std::all_of(name.begin(), name.end(), [](unsigned char c) {
                        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
                      });
  if (usable) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name,
      "' cannot be a cluster's name: use up to 63 letters, digits, '.', '_' and '-', the first a letter or digit"));
}

std::string StateDirectory::cluster_directory(const std::string& name) const { return absl::StrCat(root_, "/", name); }

std::string StateDirectory::log_path(const std::string& name, const ServerRecord& server) const {
  return absl::StrCat(cluster_directory(name), "/logs/", server.name(), ".log");
}

absl::StatusOr<std::optional<ClusterState>> StateDirectory::Load(const std::string& name) const {
  const std::string path = cluster_directory(name) + "/state.json";
  std::ifstream file(path);
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    return ErrnoStatus(absl::StrCat("cannot read ", path));
  }
  try {
    return StateFromJson(json::parse(file));
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", error.what()));
  }
}

absl::Status StateDirectory::Save(const ClusterState& state) const {
  const std::string directory = cluster_directory(state.name);
  std::error_code error;
  std::filesystem::create_directories(directory + "/logs", error);
  if (error) return absl::InternalError(absl::StrCat("cannot create ", directory, ": ", error.message()));
  chmod(directory.c_str(), 0700);
  const std::string path = directory + "/state.json";
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << ToJson(state).dump(2) << "\n";
    file.close();
    if (!file) return ErrnoStatus(absl::StrCat("cannot write ", temporary));
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(absl::StrCat("cannot replace ", path));
  return absl::OkStatus();
}

absl::Status StateDirectory::Remove(const std::string& name) const {
  const std::string path = cluster_directory(name) + "/state.json";
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(absl::StrCat("cannot remove ", path));
  return absl::OkStatus();
}

std::vector<std::string> StateDirectory::List() const {
  std::vector<std::string> names;
  std::error_code ignored;  // no root, no clusters
  std::filesystem::directory_iterator entries(root_, ignored), end;
  for (; entries != end; entries.increment(ignored)) {
    if (std::filesystem::exists(entries->path() / "state.json", ignored)) names.push_back(entries->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<ClusterLock> ClusterLock::Acquire(const std::string& lock_path, void (*on_wait)()) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(lock_path).parent_path(), error);
  if (error) return absl::InternalError(absl::StrCat("cannot create the folder of ", lock_path, ": ", error.message()));
  const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(absl::StrCat("cannot open ", lock_path));
  ClusterLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return ErrnoStatus(absl::StrCat("cannot lock ", lock_path));
  on_wait();
  if (flock(fd, LOCK_EX) == 0) return lock;
  if (errno == EINTR) return absl::CancelledError("interrupted");
  return ErrnoStatus(absl::StrCat("cannot lock ", lock_path));
}

ClusterLock::~ClusterLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace openpathways::cli
