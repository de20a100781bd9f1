#include "worker/client_pool.h"

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace openpathways::worker {

absl::StatusOr<std::shared_ptr<ClientPool>> ClientPool::Create(std::shared_ptr<pjrt::Plugin> plugin, int num_devices,
                                                               int process_index) {
  std::shared_ptr<ClientPool> pool(new ClientPool(plugin, num_devices, process_index));
  absl::StatusOr<std::shared_ptr<pjrt::Client>> client = pool->CreateCpuClient();
  // A plugin for real hardware does not know these options.
  if (absl::IsInvalidArgument(client.status())) client = plugin->CreateClient({});
  RETURN_IF_ERROR(client.status());
  pool->platform_name_ = (*client)->platform_name();
  pool->platform_version_ = (*client)->platform_version();
  pool->one_for_all_ = pool->platform_name_ != "cpu";
  pool->devices_ = static_cast<int>((*client)->local_devices().size());
  if (num_devices != 0 && pool->devices_ != num_devices) {
    return absl::FailedPreconditionError(absl::StrCat("this worker has to provide ", num_devices,
                                                      " devices, but the plugin (", pool->platform_name_, ") has ",
                                                      pool->devices_));
  }
  absl::MutexLock lock(&pool->mu_);
  pool->idle_.push_back(*std::move(client));
  return pool;
}

absl::StatusOr<std::shared_ptr<pjrt::Client>> ClientPool::CreateCpuClient() const {
  std::map<std::string, pjrt::Plugin::Option> options;
  if (num_devices_ > 0) options["cpu_device_count"] = int64_t{num_devices_};
  options["process_id"] = int64_t{process_index_};
  options["asynchronous"] = false;
  return plugin_->CreateClient(options);
}

absl::StatusOr<std::shared_ptr<pjrt::Client>> ClientPool::Acquire() {
  {
    absl::MutexLock lock(&mu_);
    if (one_for_all_) return idle_.front();
    if (!idle_.empty()) {
      std::shared_ptr<pjrt::Client> client = std::move(idle_.back());
      idle_.pop_back();
      return client;
    }
  }
  return CreateCpuClient();
}

void ClientPool::Release(std::shared_ptr<pjrt::Client> client) {
  if (one_for_all_) return;
  absl::MutexLock lock(&mu_);
  idle_.push_back(std::move(client));
}

}  // namespace openpathways::worker
