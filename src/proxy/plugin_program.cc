#include "proxy/plugin_program.h"

#include <google/protobuf/util/json_util.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "ifrt/op_sharding.h"
#include "proxy/plugin_program.pb.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

constexpr absl::string_view kPrefix = "__serialized_plugin_program ";

// Spreads its arguments over devices in another way. What they are shows only when they come.
class ReshardExecutable : public ifrt::LoadedExecutable {
 public:
  ReshardExecutable(ifrt::Backend& backend, bool donate, ifrt::DeviceList devices,
                    std::vector<ifrt::ShardingRef> shardings)
      : backend_(backend), donate_(donate), devices_(std::move(devices)), shardings_(std::move(shardings)) {
    program_.set_name("reshard");
    for (int i = 0; donate && i < static_cast<int>(shardings_.size()); ++i) program_.add_donated_parameters(i);
  }

  const compiler::Program& program() const override { return program_; }
  compiler::CompiledProgramRef compiled() const override { return nullptr; }
  const ifrt::DeviceList& devices() const override { return devices_; }
  const std::vector<ifrt::ArraySpec>& output_specs() const override { return no_specs_; }
  size_t num_outputs() const override { return shardings_.size(); }
  bool describes_arrays() const override { return false; }

  absl::StatusOr<ifrt::ExecuteResult> Execute(const std::vector<ifrt::ArrayRef>& arguments,
                                              const ifrt::ExecuteOptions& options) override {
    if (arguments.size() != shardings_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a resharding of ", shardings_.size(), " arrays was given ", arguments.size()));
    }
    std::vector<ifrt::ArraySpec> specs;
    for (size_t i = 0; i < arguments.size(); ++i) {
      specs.push_back({arguments[i]->dtype(), arguments[i]->shape(), shardings_[i]});
    }
    const bool donate = donate_ && options.non_donatable_inputs.empty();
    ifrt::ExecuteResult result{{}, Future<>(absl::OkStatus())};
    ASSIGN_OR_RETURN(result.outputs, backend_.ReshardArrays(arguments, std::move(specs),
                                                            donate ? ifrt::CopySemantics::kDonateInput
                                                                   : ifrt::CopySemantics::kAlwaysCopy));
    if (options.want_status) result.status = ifrt::Array::WhenAllReady(result.outputs);
    return result;
  }

  absl::StatusOr<ifrt::LoadedExecutableRef> OnDevices(ifrt::DeviceList devices) override {
    return absl::InvalidArgumentError("a resharding names its devices itself");
  }

 private:
  ifrt::Backend& backend_;
  const bool donate_;
  const ifrt::DeviceList devices_;  // of the arguments
  const std::vector<ifrt::ShardingRef> shardings_;
  const std::vector<ifrt::ArraySpec> no_specs_;
  compiler::Program program_;
};

absl::StatusOr<ifrt::ShardingRef> MakeSharding(const ReshardRequest::Sharding& proto, const ifrt::DeviceIds& ids) {
  const auto& device_ids = proto.devices().device_ids();
  ASSIGN_OR_RETURN(ifrt::DeviceList devices, ids.FindAll(absl::MakeConstSpan(device_ids.data(), device_ids.size())));
  ASSIGN_OR_RETURN(std::string memory_kind, MemoryKindFromName(proto.memory_kind()));
  ASSIGN_OR_RETURN(ifrt::Sharding::Partitioning partitioning,
                   ifrt::PartitioningFromOpSharding(proto.xla_hlo_sharding(), static_cast<int>(devices.size())));
  return ifrt::Sharding::Create(std::move(devices), std::move(memory_kind), std::move(partitioning));
}

absl::StatusOr<ifrt::LoadedExecutableRef> MakeReshard(const ReshardRequest& request, ifrt::Backend& backend,
                                                      const ifrt::DeviceIds& ids) {
  if (request.in_sharding_size() != request.out_sharding_size() || request.in_sharding().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("Bad PluginProgram: a resharding from ", request.in_sharding_size(),
                                                   " shardings to ", request.out_sharding_size()));
  }
  std::vector<ifrt::ShardingRef> shardings;
  for (const ReshardRequest::Sharding& sharding : request.out_sharding()) {
    ASSIGN_OR_RETURN(shardings.emplace_back(), MakeSharding(sharding, ids));
  }
  ASSIGN_OR_RETURN(ifrt::ShardingRef from, MakeSharding(request.in_sharding(0), ids));
  return std::make_shared<ReshardExecutable>(backend, request.donate_input(), from->devices(), std::move(shardings));
}

}  // namespace

absl::StatusOr<ifrt::LoadedExecutableRef> MakePluginExecutable(absl::string_view serialized, ifrt::Backend& backend,
                                                               const ifrt::DeviceIds& ids) {
  if (!absl::ConsumePrefix(&serialized, kPrefix)) {
    return absl::InvalidArgumentError("Bad serialized xla::ifrt::PluginProgram");
  }
  PluginRequest request;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // those of newer clients
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(serialized), &request, options);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("Bad PluginProgram: ", std::string(parsed.message())));
  }
  if (request.has_reshard_request()) return MakeReshard(request.reshard_request(), backend, ids);
  return absl::UnimplementedError("Bad PluginProgram: this server does not know the request");
}

}  // namespace openpathways::proxy
