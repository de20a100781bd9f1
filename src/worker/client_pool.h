// The PJRT clients of a worker.
//
// On the CPU plugin each controller gets a client of its own, so that none waits for another's launches: with one
// client for all, two controllers whose launches reach two workers in different orders could wait for each other for
// ever. Memory is the host's anyway, so nothing is split. Other plugins own their hardware: there all controllers share
// the one client.
//
// A CPU client runs a program on the thread that calls Execute (`asynchronous` is off): the worker has threads for that
// (device_queue.h), which cost a fifth of what the plugin's own way of doing it costs (pjrt/cpu_plugin.md).
//
// Clients are kept and used again. Thread-safe.
#ifndef OPENPATHWAYS_WORKER_CLIENT_POOL_H_
#define OPENPATHWAYS_WORKER_CLIENT_POOL_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "pjrt/pjrt.h"

namespace openpathways::worker {

class ClientPool {
 public:
  // Makes the first client. `num_devices` 0: as many as the plugin has. `process_index` makes device ids unique among
  // workers (CPU plugin). FAILED_PRECONDITION if the plugin has another number of devices.
  static absl::StatusOr<std::shared_ptr<ClientPool>> Create(std::shared_ptr<pjrt::Plugin> plugin, int num_devices,
                                                            int process_index);

  // A client for one controller, until Release. May take some milliseconds.
  absl::StatusOr<std::shared_ptr<pjrt::Client>> Acquire();
  void Release(std::shared_ptr<pjrt::Client> client);

  int num_devices() const { return devices_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }

 private:
  ClientPool(std::shared_ptr<pjrt::Plugin> plugin, int num_devices, int process_index)
      : plugin_(std::move(plugin)), num_devices_(num_devices), process_index_(process_index) {}
  absl::StatusOr<std::shared_ptr<pjrt::Client>> CreateCpuClient() const;

  const std::shared_ptr<pjrt::Plugin> plugin_;
  const int num_devices_;  // asked for; 0: any
  const int process_index_;
  int devices_ = 0;  // that each client has
  std::string platform_name_;
  std::string platform_version_;
  bool one_for_all_ = false;

  absl::Mutex mu_;
  std::vector<std::shared_ptr<pjrt::Client>> idle_ ABSL_GUARDED_BY(mu_);
};

// Whether launches are made device by device, each on the device's own DeviceQueue, because the client runs them to
// their end.
inline bool LaunchesPerDevice(const pjrt::Client& client) { return client.platform_name() == "cpu"; }

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_CLIENT_POOL_H_
