// A compiled program and the workers that it is loaded on: shared by all LoadedExecutables of the same program on the
// same devices, so that a program that is compiled again and again is loaded once.
#ifndef OPENPATHWAYS_IFRT_LOADED_PROGRAM_H_
#define OPENPATHWAYS_IFRT_LOADED_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cluster/cluster.h"
#include "compiler/compiler.h"
#include "ifrt/device.h"

namespace openpathways::ifrt {

// One loading on one set of workers. If one of them is replaced, another loading takes its place. Unloaded everywhere
// when the last reference goes.
struct Loading {
  ~Loading();
  std::shared_ptr<cluster::Dispatcher> dispatcher;
  std::vector<cluster::WorkerRef> workers;  // as LoadedProgram::participants()
  uint64_t executable = 0;
};

// Thread-safe.
class LoadedProgram {
 public:
  // One worker's share of the program.
  struct Participant {
    int slice = 0;
    int host = 0;
    std::vector<int> shards;  // positions in the device list, ascending
  };

  // INVALID_ARGUMENT if the options cannot carry the device assignment. `cluster` must outlive the object.
  static absl::StatusOr<std::shared_ptr<LoadedProgram>> Create(const cluster::Cluster& cluster,
                                                               compiler::CompiledProgramRef compiled,
                                                               std::string compile_options, DeviceList devices);

  const compiler::CompiledProgramRef& compiled() const { return compiled_; }
  size_t serialized_size() const { return executable_bytes_.size(); }
  const DeviceList& devices() const { return devices_; }
  const std::vector<Participant>& participants() const { return participants_; }

  // The same program for other devices.
  absl::StatusOr<std::shared_ptr<LoadedProgram>> OnDevices(DeviceList devices) const {
    return Create(cluster_, compiled_, compile_options_, std::move(devices));
  }

  // The loading on the workers of now; begins it if there is none. DATA_LOSS if one of them is lost.
  absl::StatusOr<std::shared_ptr<const Loading>> Load();

 private:
  LoadedProgram(const cluster::Cluster& cluster, compiler::CompiledProgramRef compiled, std::string compile_options,
                DeviceList devices);
  std::shared_ptr<const Loading> BeginLoading(std::vector<cluster::WorkerRef> workers) const;

  const cluster::Cluster& cluster_;
  const compiler::CompiledProgramRef compiled_;
  const std::string compile_options_;
  const DeviceList devices_;
  std::vector<Participant> participants_;
  std::vector<uint32_t> placement_;  // of each shard: index into participants_
  transport::Buffer executable_bytes_;
  std::mutex mu_;  // guards what follows
  std::shared_ptr<const Loading> loading_;
};
using LoadedProgramRef = std::shared_ptr<LoadedProgram>;

// Finds the LoadedProgram that exists already. The programs used last stay loaded for a while when nobody holds them
// any more: whoever compiles such a program again, in whatever session, costs the workers nothing. Thread-safe.
class LoadedPrograms {
 public:
  absl::StatusOr<LoadedProgramRef> FindOrCreate(const cluster::Cluster& cluster, compiler::CompiledProgramRef compiled,
                                                std::string compile_options, DeviceList devices);

 private:
  static constexpr size_t kMaxKept = 16;
  static constexpr size_t kMaxKeptBytes = size_t{64} << 20;  // serialized

  // Makes `program` the last used one; returns those that are no longer kept. REQUIRES: mu_ is held.
  std::vector<LoadedProgramRef> Keep(LoadedProgramRef program);

  // The compiler gives out one object for equal programs and options.
  using Key = std::pair<const compiler::CompiledProgram*, DeviceList>;
  std::mutex mu_;  // guards what follows
  absl::flat_hash_map<Key, std::weak_ptr<LoadedProgram>> programs_;
  std::list<LoadedProgramRef> kept_;  // last used first
};

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_LOADED_PROGRAM_H_
