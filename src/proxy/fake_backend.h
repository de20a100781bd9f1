// For tests: a cluster that is not there. Two slices of two hosts of four devices; arrays take their bytes and keep
// them.
#ifndef OPENPATHWAYS_PROXY_FAKE_BACKEND_H_
#define OPENPATHWAYS_PROXY_FAKE_BACKEND_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ifrt/backend.h"

namespace openpathways::proxy {

// Has two parameters and one result, all F32[4] on one device. Parameter 0 is donated.
class FakeExecutable;

class FakeBackend : public ifrt::Backend {
 public:
  FakeBackend();
  ~FakeBackend() override;

  // What has come for one array, in order of arrival.
  struct Received {
    absl::Mutex mu;
    std::string bytes ABSL_GUARDED_BY(mu);
    bool finished ABSL_GUARDED_BY(mu) = false;
    absl::Status status ABSL_GUARDED_BY(mu);
    std::vector<absl::AnyInvocable<void()>> held ABSL_GUARDED_BY(mu);  // with hold_pieces

    absl::Status WaitFinished();
    std::string Bytes();
    void WaitHeld(size_t pieces);
    void ReleaseHeld();
  };
  using ReceivedRef = std::shared_ptr<Received>;
  // Of the n-th array made of host buffers, once there is one.
  ReceivedRef WaitReceived(size_t n);
  // Pieces are held until released: the devices are slow.
  std::atomic<bool> hold_pieces = false;

  // Arrays that are made next are pending until the only worker is lost, which makes them DATA_LOSS. Others are there,
  // but cannot be read.
  std::atomic<bool> pending_arrays = false;
  void LoseWorker();
  // Until this is called, Compile does not end.
  std::atomic<bool> hold_compiles = false;
  void FinishCompiles();

  // Waits for that many executables to be left (a request that has been answered may still hold one); how many are.
  int WaitExecutables(int executables);
  int WaitClients(int clients);
  // Waits until nothing but the test holds the array.
  std::weak_ptr<ifrt::Array> last_output() const;

  const ifrt::DeviceList& devices() const override { return devices_; }
  std::string platform_name() const override { return "tpu"; }
  std::string platform_version() const override { return "a fake for tests"; }
  Future<std::shared_ptr<const ifrt::DeviceIds>> AllocateDeviceIds() override;
  void Ping(absl::AnyInvocable<void()> pong) override { pong(); }
  void SetClientCount(int clients) override;
  absl::StatusOr<ifrt::ArrayRef> MakeArrayFromHostShards(ifrt::ArraySpec spec,
                                                         std::vector<ifrt::HostShard> shards) override;
  absl::StatusOr<ifrt::ArrayRef> AssembleArray(ifrt::ArraySpec spec, absl::Span<const ifrt::ArrayRef> arrays,
                                               ifrt::CopySemantics semantics) override;
  absl::StatusOr<std::vector<ifrt::ArrayRef>> DisassembleArray(const ifrt::ArrayRef& array,
                                                               ifrt::CopySemantics semantics) override;
  absl::StatusOr<std::vector<ifrt::ArrayRef>> CopyArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                         std::optional<ifrt::DeviceList> devices,
                                                         std::optional<std::string> memory_kind,
                                                         ifrt::CopySemantics semantics) override;
  absl::StatusOr<std::vector<ifrt::ArrayRef>> RemapArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                          std::vector<ifrt::ArraySpec> specs,
                                                          absl::Span<const ifrt::ShardMapping> mappings,
                                                          ifrt::CopySemantics semantics) override;
  absl::StatusOr<std::vector<ifrt::ArrayRef>> ReshardArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                            std::vector<ifrt::ArraySpec> specs,
                                                            ifrt::CopySemantics semantics) override;
  absl::StatusOr<std::vector<ifrt::ArrayRef>> BitcastArrays(absl::Span<const ifrt::ArrayRef> arrays,
                                                            std::vector<ifrt::ArraySpec> specs,
                                                            ifrt::CopySemantics semantics) override {
    return ReshardArrays(arrays, std::move(specs), semantics);
  }
  absl::StatusOr<ifrt::ArrayRef> FullyReplicatedShard(const ifrt::ArrayRef& array,
                                                      ifrt::CopySemantics semantics) override;
  Future<ifrt::LoadedExecutableRef> Compile(std::string program, std::string compile_options,
                                            ifrt::DeviceList devices) override;
  Future<std::string> ProgramText(const ifrt::LoadedExecutable& executable) override;
  Future<compiler::Layout> DefaultLayout(ifrt::DType dtype, ifrt::Shape shard_shape) override;

  // The mappings of the last RemapArrays.
  std::vector<ifrt::ShardMapping> last_mappings() const;

 private:
  friend class FakeExecutable;
  struct Cluster;
  ifrt::ArrayRef NewArray(ifrt::ArraySpec spec);
  ifrt::ArrayRef NewOutput(ifrt::ArraySpec spec);

  std::vector<std::unique_ptr<ifrt::Device>> storage_;
  ifrt::DeviceList devices_;
  std::unique_ptr<Cluster> cluster_;
  absl::Mutex executables_mu_;
  int executables_ ABSL_GUARDED_BY(executables_mu_) = 0;
  std::atomic<int32_t> next_device_id_ = 144;

  mutable absl::Mutex mu_;
  int clients_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<ReceivedRef> received_ ABSL_GUARDED_BY(mu_);
  std::vector<ifrt::ShardMapping> mappings_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::AnyInvocable<void()>> compiles_ ABSL_GUARDED_BY(mu_);
  std::weak_ptr<ifrt::Array> last_output_ ABSL_GUARDED_BY(mu_);
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_FAKE_BACKEND_H_
