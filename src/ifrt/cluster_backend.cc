#include "ifrt/cluster_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ifrt/bitcast.h"
#include "ifrt/client_status.h"
#include "ifrt/copy.h"
#include "ifrt/host_transfer.h"
#include "ifrt/launch.h"
#include "ifrt/loaded_program.h"
#include "ifrt/rearrange.h"
#include "ifrt/reshard.h"

namespace openpathways::ifrt {
namespace {

std::vector<std::unique_ptr<const Device>> MakeDevices(const std::vector<topology::SliceTopology>& slices) {
  std::vector<std::unique_ptr<const Device>> devices;
  for (size_t slice = 0; slice < slices.size(); ++slice) {
    const topology::SliceTopology& topology = slices[slice];
    for (int i = 0; i < topology.num_devices(); ++i) {
      auto device = std::make_unique<Device>();
      const topology::SliceTopology::Coords coords = topology.coords(i);
      device->index = static_cast<int>(devices.size());
      device->slice = static_cast<int>(slice);
      device->host = topology.host(i);
      device->ordinal = topology.index_on_host(i);
      device->coords = {coords[0], coords[1], coords[2]};
      device->core_on_chip = coords[3];
      device->cores = topology.cores_per_device();
      device->kind = topology.device_kind();
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

class ClusterBackend : public Backend {
 public:
  ClusterBackend(std::unique_ptr<cluster::Cluster> cluster, std::unique_ptr<compiler::Compiler> compiler)
      : state_(std::make_shared<State>()) {
    state_->owned_devices = MakeDevices(cluster->slices());
    for (const auto& device : state_->owned_devices) state_->devices.push_back(device.get());
    state_->cluster = std::move(cluster);
    compiler_ = std::move(compiler);
  }

  ~ClusterBackend() override { compiler_.reset(); }

  const DeviceList& devices() const override { return state_->devices; }
  std::string platform_name() const override { return "tpu"; }
  std::string platform_version() const override {
    return "OpenPathways: emulated TPU slices, programs run on the CPUs of the workers' hosts";
  }

  Future<std::shared_ptr<const DeviceIds>> AllocateDeviceIds() override {
    Promise<std::shared_ptr<const DeviceIds>> promise;
    Future<std::shared_ptr<const DeviceIds>> future = promise.future();
    cluster().AllocateDeviceIds().OnReady(
        [state = state_, promise = std::move(promise)](const absl::StatusOr<std::vector<int32_t>>& firsts) mutable {
          promise.Set(MakeDeviceIds(state->devices, firsts));
        });
    return future;
  }
  void Ping(absl::AnyInvocable<void()> pong) override { cluster().Ping(std::move(pong)); }
  transport::Arena* host_memory() override { return &cluster().transport().arena(); }
  void SetClientCount(int clients) override { cluster().SetClientCount(clients); }

  absl::StatusOr<ArrayRef> MakeArrayFromHostShards(ArraySpec spec, std::vector<HostShard> shards) override {
    return TransferHostShards(cluster(), std::move(spec), std::move(shards));
  }
  absl::StatusOr<ArrayRef> AssembleArray(ArraySpec spec, absl::Span<const ArrayRef> single_device_arrays,
                                         CopySemantics semantics) override {
    return Assemble(std::move(spec), single_device_arrays, semantics);
  }
  absl::StatusOr<std::vector<ArrayRef>> DisassembleArray(const ArrayRef& array, CopySemantics semantics) override {
    return Disassemble(array, semantics);
  }
  absl::StatusOr<std::vector<ArrayRef>> CopyArrays(absl::Span<const ArrayRef> arrays, std::optional<DeviceList> devices,
                                                   std::optional<std::string> memory_kind,
                                                   CopySemantics semantics) override {
    return CopyToDevices(cluster(), arrays, devices, memory_kind, semantics);
  }
  absl::StatusOr<std::vector<ArrayRef>> RemapArrays(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                                    absl::Span<const ShardMapping> mappings,
                                                    CopySemantics semantics) override {
    return Remap(arrays, std::move(specs), mappings, semantics);
  }
  absl::StatusOr<std::vector<ArrayRef>> ReshardArrays(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                                      CopySemantics semantics) override {
    return Reshard(cluster(), arrays, std::move(specs), semantics);
  }
  absl::StatusOr<std::vector<ArrayRef>> BitcastArrays(absl::Span<const ArrayRef> arrays, std::vector<ArraySpec> specs,
                                                      CopySemantics semantics) override {
    return Bitcast(arrays, std::move(specs), semantics);
  }
  absl::StatusOr<ArrayRef> FullyReplicatedShard(const ArrayRef& array, CopySemantics semantics) override {
    return TakeReplicatedShard(array, semantics);
  }

  Future<LoadedExecutableRef> Compile(std::string program, std::string compile_options, DeviceList devices) override;
  Future<std::string> ProgramText(const LoadedExecutable& executable) override;
  Future<compiler::Layout> DefaultLayout(DType dtype, Shape shard_shape) override;

 private:
  // What callbacks of the compiler and of the resource manager use, which may come late.
  struct State {
    std::vector<std::unique_ptr<const Device>> owned_devices;
    DeviceList devices;
    std::unique_ptr<cluster::Cluster> cluster;
    LoadedPrograms programs;
  };

  const cluster::Cluster& cluster() const { return *state_->cluster; }
  cluster::Cluster& cluster() { return *state_->cluster; }

  static absl::StatusOr<std::shared_ptr<const DeviceIds>> MakeDeviceIds(
      const DeviceList& devices, const absl::StatusOr<std::vector<int32_t>>& firsts) {
    if (!firsts.ok()) return ForClient(firsts.status());
    std::vector<int32_t> ids;
    int in_slice = 0;
    for (const Device* device : devices) {
      if (device->slice >= static_cast<int>(firsts->size())) {
        return absl::FailedPreconditionError(
            absl::StrCat("the resource manager gave ids for ", firsts->size(), " slices, too few for this cluster"));
      }
      if (device->index == 0 || devices[device->index - 1]->slice != device->slice) in_slice = 0;
      ids.push_back((*firsts)[device->slice] + in_slice++);
    }
    return std::make_shared<const DeviceIds>(devices, std::move(ids));
  }

  static absl::StatusOr<LoadedExecutableRef> LoadCompiled(State& state, compiler::CompiledProgramRef compiled,
                                                          std::string compile_options, DeviceList devices) {
    // The results are checked first: a program that cannot be used is not loaded.
    RETURN_IF_ERROR(OutputSpecs(compiled->program, devices).status());
    ASSIGN_OR_RETURN(LoadedProgramRef program,
                     state.programs.FindOrCreate(*state.cluster, std::move(compiled), std::move(compile_options),
                                                 std::move(devices)));
    // With a lost worker the program is loaded by the first launch that finds a new one.
    absl::Status loaded = program->Load().status();
    if (!loaded.ok() && !absl::IsDataLoss(loaded)) return loaded;
    return MakeLoadedExecutable(std::move(program));
  }

  std::shared_ptr<State> state_;
  std::unique_ptr<compiler::Compiler> compiler_;
};

Future<LoadedExecutableRef> ClusterBackend::Compile(std::string program, std::string compile_options,
                                                    DeviceList devices) {
  if (devices.empty()) {
    return Future<LoadedExecutableRef>(absl::InvalidArgumentError("a program needs at least one device"));
  }
  Promise<LoadedExecutableRef> promise;
  Future<LoadedExecutableRef> future = promise.future();
  compiler_->Compile(std::move(program), compile_options)
      .OnReady([state = state_, promise = std::move(promise), options = std::move(compile_options),
                devices = std::move(devices)](const absl::StatusOr<compiler::CompiledProgramRef>& compiled) mutable {
        if (!compiled.ok()) return promise.Set(ForClient(compiled.status()));
        promise.Set(LoadCompiled(*state, *compiled, std::move(options), std::move(devices)));
      });
  return future;
}

Future<std::string> ClusterBackend::ProgramText(const LoadedExecutable& executable) {
  if (executable.compiled() == nullptr) {
    return Future<std::string>(absl::UnimplementedError(
        absl::StrCat("'", executable.program().name(), "' is no compiled program: it has no text")));
  }
  Promise<std::string> promise;
  Future<std::string> future = promise.future();
  compiler_->ProgramText(*executable.compiled())
      .OnReady([promise = std::move(promise)](const absl::StatusOr<std::string>& text) mutable {
        if (!text.ok()) return promise.Set(ForClient(text.status()));
        promise.Set(*text);
      });
  return future;
}

Future<compiler::Layout> ClusterBackend::DefaultLayout(DType dtype, Shape shard_shape) {
  if (dtype == DType::kString) {  // no plugin knows them
    compiler::Layout layout;
    for (size_t d = shard_shape.size(); d-- > 0;) layout.add_minor_to_major(static_cast<int64_t>(d));
    return Future<compiler::Layout>(std::move(layout));
  }
  Promise<compiler::Layout> promise;
  Future<compiler::Layout> future = promise.future();
  compiler_->DefaultLayout(static_cast<int>(dtype), std::move(shard_shape))
      .OnReady([promise = std::move(promise)](const absl::StatusOr<compiler::Layout>& layout) mutable {
        if (!layout.ok()) return promise.Set(ForClient(layout.status()));
        promise.Set(*layout);
      });
  return future;
}

}  // namespace

std::unique_ptr<Backend> MakeClusterBackend(std::unique_ptr<cluster::Cluster> cluster,
                                            std::unique_ptr<compiler::Compiler> compiler) {
  return std::make_unique<ClusterBackend>(std::move(cluster), std::move(compiler));
}

}  // namespace openpathways::ifrt
