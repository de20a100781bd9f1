// The controller's link to the resource manager (RM): which workers there are, ids for client sessions, and the report
// that this proxy exists.
#ifndef OPENPATHWAYS_CLUSTER_MEMBERSHIP_H_
#define OPENPATHWAYS_CLUSTER_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/future.h"
#include "resource_manager/resource_manager.pb.h"

namespace openpathways::cluster {

// Thread-safe.
class Membership {
 public:
  virtual ~Membership() = default;  // no callback runs afterwards

  // Calls `on_snapshot` with the state of the cluster at once and after every change, one call at a time, in order. The
  // RM may go away and come back, also as another one that has to learn its members again. Called once.
  using SnapshotCallback = std::function<void(const resource_manager::ClusterSnapshot&)>;
  virtual void Start(SnapshotCallback on_snapshot) = 0;

  // Ids of a client session's devices: that of device 0 of each slice; a slice's devices follow one by one. Waits for
  // the RM if it is away.
  virtual Future<std::vector<int32_t>> AllocateDeviceIds() = 0;

  // Clients that this proxy has, for status pages.
  virtual void SetClientCount(int clients) = 0;

  struct Options {
    std::string resource_manager_address;  // "host:port", plain HTTP/2
    std::string proxy_address;  // "host:port" under which clients reach this process; empty host: as the RM sees it
  };
  // The real one: tries to connect for ever, with back-off, and logs why it waits.
  static std::unique_ptr<Membership> Connect(Options options);
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_MEMBERSHIP_H_
