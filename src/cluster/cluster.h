// The cluster as the controller sees it: its slices, the worker that holds each place (slice and host) now, and the way
// of commands to them.
//
// A place's worker is lost when its connection breaks or the resource manager says so. It stays the place's worker
// (work given to it fails at once with DATA_LOSS) until another one registers, or a new connection to the same process
// works.
//
// Thread-safe.
#ifndef OPENPATHWAYS_CLUSTER_CLUSTER_H_
#define OPENPATHWAYS_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/future.h"
#include "cluster/dispatcher.h"
#include "cluster/membership.h"
#include "cluster/worker.h"
#include "topology/slice_topology.h"
#include "transport/transport.h"

namespace openpathways::cluster {

class Cluster {
 public:
  // Blocks, without limit, until the resource manager has told the cluster's shape; workers may come later.
  static absl::StatusOr<std::unique_ptr<Cluster>> Create(std::unique_ptr<Membership> membership);
  ~Cluster();  // every worker is lost to those who still hold one

  const std::vector<topology::SliceTopology>& slices() const;
  // The worker that holds the place now. Never null. REQUIRES: the place exists.
  WorkerRef worker(int slice, int host) const;

  // Shared with what may outlive the cluster (buffers that delete themselves).
  const std::shared_ptr<Dispatcher>& dispatcher() const;
  transport::Transport& transport() const;

  // Calls `pong` on the thread of the connections to the workers, after the locks of dispatch and membership.
  void Ping(absl::AnyInvocable<void()> pong);

  // See Membership.
  Future<std::vector<int32_t>> AllocateDeviceIds();
  void SetClientCount(int clients);

 private:
  // What callbacks of workers and of the membership reach; outlives the Cluster for as long as one of them runs.
  class Places;

  Cluster(std::unique_ptr<transport::Transport> transport, std::unique_ptr<Membership> membership);

  std::unique_ptr<transport::Transport> transport_;
  std::shared_ptr<Places> places_;
  std::unique_ptr<Membership> membership_;
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_CLUSTER_H_
