#include "pjrt/plugin.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "pjrt/client.h"

namespace openpathways::pjrt {
namespace {

constexpr char kScopeTypeName[] = "openpathways.ExecuteScope";
constexpr char kHandlerPlatform[] = "Host";

struct OpenPlugins {
  absl::Mutex mu;
  std::map<std::string, std::shared_ptr<Plugin>> by_path ABSL_GUARDED_BY(mu);
};

OpenPlugins& GetOpenPlugins() {
  static auto* plugins = new OpenPlugins;  // like the libraries, never unloaded
  return *plugins;
}

absl::StatusOr<const PJRT_Api*> OpenLibrary(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("cannot open PJRT plugin ", path, ": ", dlerror()));
  }
  auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  const PJRT_Api* api = get_api == nullptr ? nullptr : get_api();
  if (api == nullptr) {
    dlclose(library);
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is no PJRT plugin: ", get_api == nullptr ? "it has no function GetPjrtApi" : "it returned no API"));
  }
  return api;
}

absl::Status CheckVersion(const std::string& path, const PJRT_Api* api) {
  const int major = api->pjrt_api_version.major_version;
  const int minor = api->pjrt_api_version.minor_version;
  if (major != PJRT_API_MAJOR || api->struct_size < PJRT_Api_STRUCT_SIZE) {
    return absl::InvalidArgumentError(absl::StrCat("PJRT plugin ", path, " has API version ", major, ".", minor,
                                                   "; needed is ", PJRT_API_MAJOR, ".", PJRT_API_MINOR, " or a later ",
                                                   PJRT_API_MAJOR, ".x"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Plugin>> Plugin::Load(const std::string& path) {
  std::error_code error;
  const std::string real_path = std::filesystem::canonical(path, error).string();
  if (error) return absl::NotFoundError(absl::StrCat("PJRT plugin ", path, ": ", error.message()));
  OpenPlugins& plugins = GetOpenPlugins();
  absl::MutexLock lock(&plugins.mu);
  auto it = plugins.by_path.find(real_path);
  if (it != plugins.by_path.end()) return it->second;
  ASSIGN_OR_RETURN(std::shared_ptr<Plugin> plugin, PluginImpl::Open(real_path));
  plugins.by_path.emplace(real_path, plugin);
  return plugin;
}

absl::StatusOr<std::shared_ptr<PluginImpl>> PluginImpl::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const PJRT_Api* table, OpenLibrary(path));
  RETURN_IF_ERROR(CheckVersion(path, table));
  std::shared_ptr<PluginImpl> plugin(new PluginImpl(path, Api(table)));
  RETURN_IF_ERROR(AnnotateStatus(plugin->Initialize(), absl::StrCat("initializing PJRT plugin ", path)));
  return plugin;
}

absl::Status PluginImpl::Initialize() {
  auto args = MakeArgs<PJRT_Plugin_Initialize_Args>();
  RETURN_IF_ERROR(api_.ToStatus(api_->PJRT_Plugin_Initialize(&args)));
  ffi_ = api_.Find<FfiExtension>(kFfiExtension);
  if (ffi_ == nullptr) return absl::OkStatus();
  FfiTypeInfo no_functions{};
  auto type = MakeArgs<FfiRegisterTypeArgs>();
  type.name = kScopeTypeName;
  type.name_size = std::strlen(kScopeTypeName);
  type.type_info = &no_functions;
  RETURN_IF_ERROR(api_.ToStatus(ffi_->register_type(&type)));
  scope_type_id_ = type.type_id;
  return absl::OkStatus();
}

std::pair<int, int> PluginImpl::api_version() const {
  return {api_->pjrt_api_version.major_version, api_->pjrt_api_version.minor_version};
}

absl::Status PluginImpl::RegisterFfiHandler(const std::string& target, void* handler) {
  if (ffi_ == nullptr) return absl::UnimplementedError(absl::StrCat("PJRT plugin ", path_, " has no FFI extension"));
  auto args = MakeArgs<FfiRegisterHandlerArgs>();
  args.target_name = target.data();
  args.target_name_size = target.size();
  args.handler = handler;
  args.platform_name = kHandlerPlatform;
  args.platform_name_size = std::strlen(kHandlerPlatform);
  return api_.ToStatus(ffi_->register_handler(&args));
}

absl::Status PluginImpl::RegisterAsyncHandler(const std::string& target, FfiHandler handler) {
  if (ffi_ == nullptr) return absl::UnimplementedError(absl::StrCat("PJRT plugin ", path_, " has no FFI extension"));
  bool is_new = false;
  ASSIGN_OR_RETURN(void* trampoline, BindHandler(this, scope_type_id_, target, std::move(handler), is_new));
  return is_new ? RegisterFfiHandler(target, trampoline) : absl::OkStatus();
}

absl::Status PluginImpl::RegisterHloTransform(const std::string& name, HloTransform transform) {
  return AnnotateStatus(RegisterTransform(api_, name, std::move(transform)), absl::StrCat("PJRT plugin ", path_));
}

absl::StatusOr<std::shared_ptr<Client>> PluginImpl::CreateClient(const std::map<std::string, Option>& options) {
  return ClientImpl::Create(std::static_pointer_cast<PluginImpl>(shared_from_this()), options);
}

absl::StatusOr<PJRT_ExecuteContext*> PluginImpl::CreateExecuteContext(ExecuteScope* scope) const {
  if (ffi_ == nullptr) return nullptr;
  auto create = MakeArgs<PJRT_ExecuteContext_Create_Args>();
  RETURN_IF_ERROR(api_.ToStatus(api_->PJRT_ExecuteContext_Create(&create)));
  auto add = MakeArgs<FfiAddUserDataArgs>();
  add.context = create.context;
  add.user_data = {scope_type_id_, scope};
  if (absl::Status status = api_.ToStatus(ffi_->add_user_data(&add)); !status.ok()) {
    DestroyExecuteContext(create.context);
    return status;
  }
  return create.context;
}

void PluginImpl::DestroyExecuteContext(PJRT_ExecuteContext* context) const {
  if (context == nullptr) return;
  auto args = MakeArgs<PJRT_ExecuteContext_Destroy_Args>();
  args.context = context;
  api_.ToStatus(api_->PJRT_ExecuteContext_Destroy(&args)).IgnoreError();  // nothing is left that could fail
}

}  // namespace openpathways::pjrt
