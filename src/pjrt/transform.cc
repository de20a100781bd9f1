// HLO transforms: our callback behind the C struct that the plugin keeps a pointer to.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "pjrt/plugin.h"
#include "pjrt/plugin_order.h"

namespace openpathways::pjrt {
namespace {

constexpr int64_t kTransformVersion = 1;
constexpr int kBeforeScheduling = 0;

// The plugin keeps the pointer and offers no reliable end of its life: the object is never freed.
struct RegisteredTransform {
  TransformCallbacks callbacks;  // first: the plugin passes its address back
  Plugin::HloTransform transform;
};

// Gives `bytes` to the plugin, which calls cleanup when it has read them.
TransformBytes KeepUntilCleanup(std::string bytes, TransformHeader& header) {
  auto* kept = new std::string(std::move(bytes));
  header.data = kept;
  header.cleanup = [](void* data) { delete static_cast<std::string*>(data); };
  return {kept->data(), kept->size()};
}

void RunTransform(TransformCallbacks* self, TransformArgs* args) {
  TakeFromPlugin();
  auto* registered = reinterpret_cast<RegisteredTransform*>(self);
  args->header.data = nullptr;
  args->header.cleanup = nullptr;
  args->header.has_error = false;
  args->changed = false;
  absl::StatusOr<std::optional<std::string>> result =
      registered->transform(absl::string_view(args->hlo_module.data, args->hlo_module.size));
  GiveToPlugin();
  if (!result.ok()) {
    args->header.has_error = true;
    args->header.code = static_cast<PJRT_Error_Code>(result.status().code());
    args->header.error_message = KeepUntilCleanup(EncodeStatus(result.status()), args->header);
    return;
  }
  if (!result->has_value()) return;
  args->transformed = KeepUntilCleanup(**std::move(result), args->header);
  args->changed = true;
}

}  // namespace

absl::Status RegisterTransform(const Api& api, const std::string& name, Plugin::HloTransform transform) {
  const auto* extension = api.Find<TransformExtension>(kXlaTransformExtension);
  if (extension == nullptr) return absl::UnimplementedError("the plugin has no XLA-transform extension");
  auto* registered =
      new RegisteredTransform{{kTransformVersion, /*destroy=*/nullptr, RunTransform}, std::move(transform)};
  auto args = MakeArgs<RegisterTransformArgs>();
  args.name = name.data();
  args.name_size = name.size();
  args.stage = kBeforeScheduling;
  args.callbacks = &registered->callbacks;
  absl::Status status = api.ToStatus(extension->register_transform(&args));
  if (!status.ok()) delete registered;
  return status;
}

}  // namespace openpathways::pjrt
