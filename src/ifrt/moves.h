// Copies of whole shards on their way to the workers.
#ifndef OPENPATHWAYS_IFRT_MOVES_H_
#define OPENPATHWAYS_IFRT_MOVES_H_

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/cluster.h"
#include "ifrt/shard.h"
#include "worker/worker.pb.h"

namespace openpathways::ifrt {

// Collects the moves of shards, then sends them, one batch for each pair of workers.
class Moves {
 public:
  explicit Moves(const cluster::Cluster& cluster) : cluster_(cluster) {}

  // The copy of `source`, of this shape, on `device`, whose worker is `to`, as a shard of an array of `spec`.
  ShardRef Add(const ShardRef& source, cluster::WorkerRef to, const Device& device, const ArraySpec& spec,
               const Shape& shape);
  void Send();

 private:
  struct Batch {
    cluster::WorkerRef from;
    cluster::WorkerRef to;
    worker::CopyBuffers copies;
    worker::SendBuffers sends;
    worker::ReceiveBuffers receives;
  };
  static cluster::Operation BetweenWorkers(Batch& batch);
  Batch& BatchFor(const cluster::WorkerRef& from, const cluster::WorkerRef& to);

  const cluster::Cluster& cluster_;
  std::vector<Batch> batches_;
  absl::flat_hash_map<std::pair<cluster::Worker*, cluster::Worker*>, size_t> index_;
};

// Where `shard` of an array of `spec` is to be.
void SetTarget(const Shard& shard, const Device& device, const ArraySpec& spec, worker::Target* target);

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_MOVES_H_
