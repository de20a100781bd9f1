// An opened plugin. Private; see pjrt.h.
#ifndef OPENPATHWAYS_PJRT_PLUGIN_H_
#define OPENPATHWAYS_PJRT_PLUGIN_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "pjrt/api.h"
#include "pjrt/pjrt.h"

namespace openpathways::pjrt {

// What an execution tells the handlers that it reaches; attached to its PJRT_ExecuteContext.
struct ExecuteScope {
  void* user_data = nullptr;
  int64_t launch_id = 0;
  std::atomic<int64_t>* waited_nanos = nullptr;
};

// Whether this thread is inside of Execute: handlers that are called on it are called for its own device.
inline thread_local bool in_execute = false;

class PluginImpl : public Plugin {
 public:
  static absl::StatusOr<std::shared_ptr<PluginImpl>> Open(const std::string& path);

  std::pair<int, int> api_version() const override;
  absl::Status RegisterFfiHandler(const std::string& target, void* handler) override;
  absl::Status RegisterAsyncHandler(const std::string& target, FfiHandler handler) override;
  absl::Status RegisterHloTransform(const std::string& name, HloTransform transform) override;
  absl::StatusOr<std::shared_ptr<Client>> CreateClient(const std::map<std::string, Option>& options) override;

  const Api& api() const { return api_; }

  // A context that carries `scope`; nullptr if the plugin has no FFI extension, so that nobody could read it.
  absl::StatusOr<PJRT_ExecuteContext*> CreateExecuteContext(ExecuteScope* scope) const;
  void DestroyExecuteContext(PJRT_ExecuteContext* context) const;

 private:
  PluginImpl(std::string path, Api api) : path_(std::move(path)), api_(api) {}
  absl::Status Initialize();

  const std::string path_;
  const Api api_;
  const FfiExtension* ffi_ = nullptr;
  int64_t scope_type_id_ = 0;  // the plugin's number for ExecuteScope as user data
};

// Binds `handler` to a free trampoline (a XLA_FFI_Handler*), or rebinds that of the same plugin and target.
absl::StatusOr<void*> BindHandler(const PluginImpl* plugin, int64_t scope_type_id, const std::string& target,
                                  FfiHandler handler, bool& is_new);

absl::Status RegisterTransform(const Api& api, const std::string& name, Plugin::HloTransform transform);

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_PLUGIN_H_
