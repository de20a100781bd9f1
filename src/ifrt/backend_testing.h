// For tests: a Backend over two slices of two fake workers of four devices.
#ifndef OPENPATHWAYS_IFRT_BACKEND_TESTING_H_
#define OPENPATHWAYS_IFRT_BACKEND_TESTING_H_

#include <memory>
#include <string>
#include <vector>

#include "cluster/fake_membership.h"
#include "cluster/fake_worker.h"
#include "gtest/gtest.h"
#include "ifrt/backend.h"

namespace openpathways::ifrt {

class BackendTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  void SetUp() override;
  // Nothing may be left behind, and no worker may have seen a breach of the rules.
  void TearDown() override;

  // Host `host` of slice `slice` registers a worker.
  cluster::FakeWorker& Join(int slice, int host);
  void JoinAll();
  cluster::FakeWorker& worker(int slice, int host) { return *workers_[slice * 2 + host]; }

  DeviceList Devices(const std::vector<int>& indices) const;
  DeviceList SliceDevices(int slice) const;
  // An F32 array of 4 elements for each device, tiled along its only dimension.
  ArraySpec Tiled(const DeviceList& devices) const;
  ArraySpec Replicated(const DeviceList& devices) const;
  // Made of zeros that have been sent.
  ArrayRef MakeArray(const ArraySpec& spec);

  // A program that maps `parameters` to `results` F32 arrays tiled as above.
  std::string Program(const std::string& name, int devices, int parameters, int results,
                      const std::vector<int>& donated = {}) const;
  static std::string CompileOptions(int devices);
  LoadedExecutableRef Compile(const std::string& program, const DeviceList& devices);

  cluster::FakeMembership* membership_ = nullptr;
  std::vector<std::unique_ptr<cluster::FakeWorker>> workers_;
  std::vector<std::unique_ptr<cluster::FakeWorker>> former_workers_;
  std::unique_ptr<Backend> backend_;
  uint64_t next_worker_id_ = 1;
};

// Appends `bytes` zeros in one piece and finishes the buffer.
void SendZeros(HostBuffer& buffer);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_BACKEND_TESTING_H_
