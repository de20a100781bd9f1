#include "proxy/fake_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cluster/dispatcher.h"
#include "cluster/worker.h"
#include "ifrt/shard.h"

namespace openpathways::proxy {

// One worker that never comes up: what is sent to it stays unanswered until it is lost.
struct FakeBackend::Cluster {
  std::shared_ptr<cluster::Dispatcher> dispatcher = std::make_shared<cluster::Dispatcher>();
  cluster::WorkerRef worker = std::make_shared<cluster::Worker>(
      0, 0, 1, cluster::Worker::Listener{[](const cluster::WorkerRef&) {}, [](const cluster::WorkerRef&) {}});
};

class FakeExecutable : public ifrt::LoadedExecutable {
 public:
  FakeExecutable(FakeBackend* backend, ifrt::DeviceList devices) : backend_(backend), devices_(std::move(devices)) {
    {
      absl::MutexLock lock(&backend_->executables_mu_);
      ++backend_->executables_;
    }
    program_.set_name("jit_f");
    for (int i = 0; i < 2; ++i) FillArray(*program_.add_parameters());
    FillArray(*program_.add_results());
    program_.add_donated_parameters(0);
    program_.set_fingerprint("fingerprint");
    (*program_.mutable_memory_stats())["temp_size_in_bytes"] = 17;
    (*program_.mutable_cost_analysis())["flops"] = 4;
    specs_.push_back({ifrt::DType::kF32, {4}, ifrt::Sharding::SingleDevice(devices_[0], "")});
  }
  ~FakeExecutable() override {
    absl::MutexLock lock(&backend_->executables_mu_);
    --backend_->executables_;
  }

  const compiler::Program& program() const override { return program_; }
  compiler::CompiledProgramRef compiled() const override { return nullptr; }
  const ifrt::DeviceList& devices() const override { return devices_; }
  const std::vector<ifrt::ArraySpec>& output_specs() const override { return specs_; }
  absl::StatusOr<ifrt::ExecuteResult> Execute(const std::vector<ifrt::ArrayRef>& arguments,
                                              const ifrt::ExecuteOptions& options) override {
    if (arguments.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat("the program takes 2 arguments, not ", arguments.size()));
    }
    for (const ifrt::ArrayRef& argument : arguments) RETURN_IF_ERROR(argument->Usable());
    const auto& keep = options.non_donatable_inputs;
    if (std::find(keep.begin(), keep.end(), 0) == keep.end()) arguments[0]->Delete();
    ifrt::ArrayRef output = backend_->NewOutput(specs_[0]);
    return ifrt::ExecuteResult{{output}, output->Ready(), std::make_shared<const std::atomic<int64_t>>(2500)};
  }
  absl::StatusOr<ifrt::LoadedExecutableRef> OnDevices(ifrt::DeviceList devices) override {
    return std::make_shared<FakeExecutable>(backend_, std::move(devices));
  }

 private:
  static void FillArray(compiler::Array& array) {
    array.set_element_type(static_cast<int>(ifrt::DType::kF32));
    array.add_dims(4);
    array.mutable_layout()->add_minor_to_major(0);
  }

  FakeBackend* const backend_;
  const ifrt::DeviceList devices_;
  compiler::Program program_;
  std::vector<ifrt::ArraySpec> specs_;
};

FakeBackend::FakeBackend() : cluster_(std::make_unique<Cluster>()) {
  for (int i = 0; i < 16; ++i) {
    auto device = std::make_unique<ifrt::Device>();
    device->index = i;
    device->slice = i / 8;
    device->host = i / 4 % 2;
    device->ordinal = i % 4;
    device->coords = {i % 2, i / 2 % 2, i / 4 % 2};
    device->kind = "TPU v5";
    devices_.push_back(device.get());
    storage_.push_back(std::move(device));
  }
}

FakeBackend::~FakeBackend() = default;

absl::Status FakeBackend::Received::WaitFinished() {
  absl::MutexLock lock(&mu);
  mu.Await(absl::Condition(&finished));
  return status;
}

std::string FakeBackend::Received::Bytes() {
  absl::MutexLock lock(&mu);
  return bytes;
}

void FakeBackend::Received::WaitHeld(size_t pieces) {
  absl::MutexLock lock(&mu);
  auto enough = [this, pieces]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return held.size() >= pieces; };
  mu.Await(absl::Condition(&enough));
}

void FakeBackend::Received::ReleaseHeld() {
  std::vector<absl::AnyInvocable<void()>> released;
  {
    absl::MutexLock lock(&mu);
    released.swap(held);
  }
  for (auto& consumed : released) consumed();
}

FakeBackend::ReceivedRef FakeBackend::WaitReceived(size_t n) {
  absl::MutexLock lock(&mu_);
  auto there = [this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return received_.size() > n; };
  mu_.Await(absl::Condition(&there));
  return received_[n];
}

void FakeBackend::LoseWorker() { cluster_->worker->Lose("the test says so"); }

void FakeBackend::FinishCompiles() {
  hold_compiles = false;
  std::vector<absl::AnyInvocable<void()>> compiles;
  {
    absl::MutexLock lock(&mu_);
    compiles.swap(compiles_);
  }
  for (auto& finish : compiles) finish();
}

int FakeBackend::WaitClients(int clients) {
  absl::MutexLock lock(&mu_);
  auto reached = [this, clients]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return clients_ == clients; };
  mu_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(30));
  return clients_;
}

int FakeBackend::WaitExecutables(int executables) {
  absl::MutexLock lock(&executables_mu_);
  auto reached = [this, executables]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return executables_ == executables; };
  executables_mu_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(30));
  return executables_;
}

std::weak_ptr<ifrt::Array> FakeBackend::last_output() const {
  absl::MutexLock lock(&mu_);
  return last_output_;
}

std::vector<ifrt::ShardMapping> FakeBackend::last_mappings() const {
  absl::MutexLock lock(&mu_);
  return mappings_;
}

Future<std::shared_ptr<const ifrt::DeviceIds>> FakeBackend::AllocateDeviceIds() {
  std::vector<int32_t> ids;
  const int32_t first = next_device_id_.fetch_add(72);
  for (const ifrt::Device* device : devices_) ids.push_back(first + device->slice * 18 + device->index % 8);
  return Future<std::shared_ptr<const ifrt::DeviceIds>>(
      std::make_shared<const ifrt::DeviceIds>(devices_, std::move(ids)));
}

void FakeBackend::SetClientCount(int clients) {
  absl::MutexLock lock(&mu_);
  clients_ = clients;
}

absl::StatusOr<ifrt::ArrayRef> FakeBackend::MakeArrayFromHostShards(ifrt::ArraySpec spec,
                                                                    std::vector<ifrt::HostShard> shards) {
  auto received = std::make_shared<Received>();
  for (ifrt::HostShard& shard : shards) {
    ifrt::HostBuffer::Consumer consumer;
    consumer.piece = [this, received](int64_t, transport::Buffer piece, absl::AnyInvocable<void()> consumed) {
      {
        absl::MutexLock lock(&received->mu);
        received->bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        if (hold_pieces) {
          received->held.push_back(std::move(consumed));
          return;
        }
      }
      consumed();
    };
    consumer.finished = [received](const absl::Status& status) {
      absl::MutexLock lock(&received->mu);
      received->finished = true;
      received->status = status;
    };
    shard.buffer->Attach(std::move(consumer));
  }
  {
    absl::MutexLock lock(&mu_);
    received_.push_back(received);
  }
  return NewArray(std::move(spec));
}

ifrt::ArrayRef FakeBackend::NewArray(ifrt::ArraySpec spec) {
  std::vector<ifrt::ShardRef> shards;
  for (size_t k = 0; pending_arrays && k < spec.sharding->devices().size(); ++k) {
    shards.push_back(
        std::make_shared<ifrt::Shard>(cluster_->dispatcher, cluster_->worker, cluster_->dispatcher->NewNames()));
  }
  return std::make_shared<ifrt::Array>(std::move(spec), std::move(shards));
}

ifrt::ArrayRef FakeBackend::NewOutput(ifrt::ArraySpec spec) {
  ifrt::ArrayRef output = NewArray(std::move(spec));
  absl::MutexLock lock(&mu_);
  last_output_ = output;
  return output;
}

absl::StatusOr<ifrt::ArrayRef> FakeBackend::AssembleArray(ifrt::ArraySpec spec, absl::Span<const ifrt::ArrayRef> arrays,
                                                          ifrt::CopySemantics semantics) {
  for (const ifrt::ArrayRef& array : arrays) RETURN_IF_ERROR(array->Usable());
  return NewArray(std::move(spec));
}

absl::StatusOr<std::vector<ifrt::ArrayRef>> FakeBackend::DisassembleArray(const ifrt::ArrayRef& array,
                                                                          ifrt::CopySemantics semantics) {
  ASSIGN_OR_RETURN(std::vector<ifrt::ShardRef> shards, array->shards());
  std::vector<ifrt::ArrayRef> result;
  const ifrt::DeviceList& devices = array->sharding()->devices();
  for (size_t k = 0; k < devices.size(); ++k) {
    ifrt::ArraySpec spec{array->dtype(), {}, ifrt::Sharding::SingleDevice(devices[k], "")};
    ASSIGN_OR_RETURN(spec.shape, array->sharding()->ShardShape(array->shape(), static_cast<int>(k)));
    std::vector<ifrt::ShardRef> own;
    if (!shards.empty()) own.push_back(shards[k]);
    result.push_back(std::make_shared<ifrt::Array>(std::move(spec), std::move(own)));
  }
  return result;
}

absl::StatusOr<std::vector<ifrt::ArrayRef>> FakeBackend::CopyArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                                    std::optional<ifrt::DeviceList> devices,
                                                                    std::optional<std::string> memory_kind,
                                                                    ifrt::CopySemantics semantics) {
  std::vector<ifrt::ArrayRef> result;
  for (const ifrt::ArrayRef& array : arrays) {
    RETURN_IF_ERROR(array->Usable());
    ifrt::ArraySpec spec = array->spec();
    ASSIGN_OR_RETURN(spec.sharding, spec.sharding->WithDevices(devices.value_or(spec.sharding->devices()),
                                                               memory_kind.value_or(spec.sharding->memory_kind())));
    result.push_back(NewArray(std::move(spec)));
  }
  return result;
}

absl::StatusOr<std::vector<ifrt::ArrayRef>> FakeBackend::RemapArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                                     std::vector<ifrt::ArraySpec> specs,
                                                                     absl::Span<const ifrt::ShardMapping> mappings,
                                                                     ifrt::CopySemantics semantics) {
  std::vector<ifrt::ArrayRef> result;
  for (ifrt::ArraySpec& spec : specs) {
    result.push_back(NewArray(std::move(spec)));
  }
  absl::MutexLock lock(&mu_);
  mappings_.assign(mappings.begin(), mappings.end());
  return result;
}

absl::StatusOr<std::vector<ifrt::ArrayRef>> FakeBackend::ReshardArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                                       std::vector<ifrt::ArraySpec> specs,
                                                                       ifrt::CopySemantics semantics) {
  std::vector<ifrt::ArrayRef> result;
  for (const ifrt::ArrayRef& array : arrays) RETURN_IF_ERROR(array->Usable());
  for (ifrt::ArraySpec& spec : specs) result.push_back(NewArray(std::move(spec)));
  if (semantics == ifrt::CopySemantics::kDonateInput) {
    for (const ifrt::ArrayRef& array : arrays) array->Delete();
  }
  return result;
}

absl::StatusOr<ifrt::ArrayRef> FakeBackend::FullyReplicatedShard(const ifrt::ArrayRef& array,
                                                                 ifrt::CopySemantics semantics) {
  ASSIGN_OR_RETURN(std::vector<ifrt::ArrayRef> shards, DisassembleArray(array, semantics));
  return shards[0];
}

Future<ifrt::LoadedExecutableRef> FakeBackend::Compile(std::string program, std::string compile_options,
                                                       ifrt::DeviceList devices) {
  if (program != "good") {
    return Future<ifrt::LoadedExecutableRef>(absl::InvalidArgumentError("the compiler does not like the program"));
  }
  auto executable = std::make_shared<FakeExecutable>(this, std::move(devices));
  if (!hold_compiles) return Future<ifrt::LoadedExecutableRef>(std::move(executable));
  Promise<ifrt::LoadedExecutableRef> promise;
  Future<ifrt::LoadedExecutableRef> future = promise.future();
  absl::MutexLock lock(&mu_);
  compiles_.push_back([promise = std::move(promise), executable = std::move(executable)]() mutable {
    promise.Set(std::move(executable));
  });
  return future;
}

Future<std::string> FakeBackend::ProgramText(const ifrt::LoadedExecutable& executable) {
  return Future<std::string>(absl::StrCat("HloModule ", executable.program().name()));
}

Future<compiler::Layout> FakeBackend::DefaultLayout(ifrt::DType dtype, ifrt::Shape shard_shape) {
  compiler::Layout layout;
  for (int d = static_cast<int>(shard_shape.size()) - 1; d >= 0; --d) layout.add_minor_to_major(d);
  if (dtype == ifrt::DType::kS4) layout.set_element_size_in_bits(4);
  return Future<compiler::Layout>(std::move(layout));
}

}  // namespace openpathways::proxy
