// Everything that a proxy server can do with the cluster, in IFRT's words. One Backend per process, shared by all
// client sessions. What a session makes belongs to that session: it holds the references, and dropping them frees the
// memory.
//
// Every call returns at once. Calls that touch the same arrays take effect in the order in which they are made.
// Thread-safe.
#ifndef OPENPATHWAYS_IFRT_BACKEND_H_
#define OPENPATHWAYS_IFRT_BACKEND_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/future.h"
#include "ifrt/array.h"
#include "ifrt/device.h"
#include "ifrt/executable.h"
#include "transport/buffer.h"

namespace openpathways::ifrt {

enum class CopySemantics { kAlwaysCopy, kReuseInput, kDonateInput };

// One host buffer that fills one or several equal shards.
struct HostShard {
  std::vector<int64_t> shard_indices;  // positions in the sharding's device list
  HostBufferRef buffer;
  Shape shape;                                       // of the shard
  std::optional<std::vector<int64_t>> byte_strides;  // absent = dense row-major
};

// Output shard `out_shard` of array `out_array` is input shard `in_shard` of array `in_array`.
struct ShardMapping {
  int in_array = 0, in_shard = 0, out_array = 0, out_shard = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  struct Options {
    std::string resource_manager_address;  // HOST:PORT
    std::string proxy_address;             // HOST:PORT under which clients reach this proxy, for status pages
    std::string plugin;                    // PJRT plugin for the compiler process
    std::string compiler_binary;           // pathways_compiler
    // Where compiled programs are kept for later and for other proxies, and how large that may become; empty: nowhere.
    std::string compilation_cache_directory = "";
    int64_t compilation_cache_bytes = 0;
  };
  // Waits (without limit, logging why) until the resource manager has told the cluster's shape; workers may come later:
  // work for a worker that was never there waits for it, up to `Options`' limits; work for one that is lost fails with
  // DATA_LOSS naming slice and host.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(Options options);

  virtual const DeviceList& devices() const = 0;     // slice-major, then host-major
  virtual std::string platform_name() const = 0;     // "tpu" for emulated slices
  virtual std::string platform_version() const = 0;  // says plainly that the chips are emulated
  // A fresh block of device ids for a client session.
  virtual Future<std::shared_ptr<const DeviceIds>> AllocateDeviceIds() = 0;
  // Calls `pong` from the far end of what every command passes on its way to the workers. Only if that is stuck does it
  // not come.
  virtual void Ping(absl::AnyInvocable<void()> pong) = 0;
  // Memory for bytes on their way to the devices: workers of this host read it in place. Null if there is none; lives
  // as long as the backend.
  virtual transport::Arena* host_memory() { return nullptr; }
  // Shown by status pages.
  virtual void SetClientCount(int clients) = 0;

  // Shards not named by any host shard are an error. Errors that show later are those of the array.
  virtual absl::StatusOr<ArrayRef> MakeArrayFromHostShards(ArraySpec spec, std::vector<HostShard> shards) = 0;
  virtual absl::StatusOr<ArrayRef> AssembleArray(ArraySpec spec, absl::Span<const ArrayRef> single_device_arrays,
                                                 CopySemantics semantics) = 0;
  virtual absl::StatusOr<std::vector<ArrayRef>> DisassembleArray(const ArrayRef& array, CopySemantics semantics) = 0;
  // Shard k goes to devices[k] (nullopt: stays) and/or another memory kind (nullopt: unchanged, "": default). Between
  // workers the data move directly.
  virtual absl::StatusOr<std::vector<ArrayRef>> CopyArrays(absl::Span<const ArrayRef> arrays,
                                                           std::optional<DeviceList> devices,
                                                           std::optional<std::string> memory_kind,
                                                           CopySemantics semantics) = 0;
  // Rearranges shards into new arrays; no data move, shards stay on their devices.
  virtual absl::StatusOr<std::vector<ArrayRef>> RemapArrays(absl::Span<const ArrayRef> arrays,
                                                            std::vector<ArraySpec> specs,
                                                            absl::Span<const ShardMapping> mappings,
                                                            CopySemantics semantics) = 0;
  // Result i has the values of array i under specs[i], which may differ from its own in everything but dtype and shape:
  // devices, partitioning, memory kind. Between workers the parts move directly.
  virtual absl::StatusOr<std::vector<ArrayRef>> ReshardArrays(absl::Span<const ArrayRef> arrays,
                                                              std::vector<ArraySpec> specs,
                                                              CopySemantics semantics) = 0;
  // Result i has the memory of array i under specs[i]: the same devices and memory kind, shards of equal size on the
  // device. Never a copy; the client knows how the elements lie in memory.
  virtual absl::StatusOr<std::vector<ArrayRef>> BitcastArrays(absl::Span<const ArrayRef> arrays,
                                                              std::vector<ArraySpec> specs,
                                                              CopySemantics semantics) = 0;
  virtual absl::StatusOr<ArrayRef> FullyReplicatedShard(const ArrayRef& array, CopySemantics semantics) = 0;

  // `compile_options`: serialized xla.CompileOptionsProto, `devices` in shard order. Compiles (or finds in the cache)
  // and loads on the workers; does not wait for the loading.
  virtual Future<LoadedExecutableRef> Compile(std::string program, std::string compile_options, DeviceList devices) = 0;
  // The optimized HLO as text, as XLA writes it, of a program that this backend has compiled.
  virtual Future<std::string> ProgramText(const LoadedExecutable& executable) = 0;
  virtual Future<compiler::Layout> DefaultLayout(DType dtype, Shape shard_shape) = 0;
};

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_BACKEND_H_
