// The way of every command to the workers, in an order that all workers agree on.
//
// An operation is a set of commands that belong together (a launch on all its workers, the two ends of a transfer). Its
// commands enter the workers' streams under one lock, so that any two operations have the same order on every worker
// that sees both. Nothing is sent under that lock.
//
// A command may have to name workers that have not come up yet (the participants of a program). Such an operation is
// set aside, and with it every later one that uses what it makes; all others go on. When the missing workers are there,
// what was set aside enters the streams in its order.
//
// Thread-safe.
#ifndef OPENPATHWAYS_CLUSTER_DISPATCHER_H_
#define OPENPATHWAYS_CLUSTER_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/delayed_tasks.h"
#include "cluster/fan_out.h"
#include "cluster/worker.h"

namespace openpathways::cluster {

struct Operation {
  struct Part {
    WorkerRef worker;
    Outgoing outgoing;
  };
  std::vector<Part> parts;       // at most one per worker
  std::vector<WorkerRef> needs;  // workers that the commands name
};

class Dispatcher {
 public:
  // The first of `count` numbers that have never been used by this controller: for buffers, executables, requests and
  // transfers.
  uint64_t NewNames(int64_t count = 1) { return next_name_.fetch_add(count, std::memory_order_relaxed); }

  // Execute commands get their launch number here: ascending in every worker's stream.
  void Dispatch(Operation operation);
  // An operation of one command that names no other worker.
  void Send(const WorkerRef& worker, Outgoing outgoing);
  // Deletes are collected until the next command to that worker, which they go before, and for 50 ms at most.
  void Delete(const WorkerRef& worker, uint64_t buffer);

  // Whether an operation has been set aside until this worker is there.
  bool IsAwaited(const WorkerRef& worker);

  // Returns as soon as the lock can be had: for checks that it is not held for ever.
  void Pass() { std::lock_guard lock(mu_); }

  // A worker has become ready or lost: lets go what waited for it.
  void OnSettled();

 private:
  using LostParts = std::vector<Operation::Part>;

  // REQUIRES, for these: mu_ is held.
  bool MustWait(const Operation& operation) const;
  bool DependsOnWaiting(const Outgoing& outgoing) const;
  void SetAside(Operation operation);
  // Appends all parts; those for lost workers end in `lost`, the workers of the others in `touched`.
  void Enter(Operation operation, LostParts& lost, std::vector<WorkerRef>& touched);

  // Sends what was appended and answers what was not; without the lock.
  void Finish(LostParts lost, std::vector<WorkerRef> touched);
  void FlushDeletes();

  std::atomic<uint64_t> next_name_ = 1;
  std::mutex mu_;  // guards what follows
  uint64_t last_launch_ = 0;
  std::list<Operation> waiting_;
  absl::flat_hash_set<uint64_t> made_by_waiting_;
  absl::flat_hash_set<uint64_t> used_by_waiting_;
  // Whether waiting_ has anything; lets single commands pass without the lock in the ordinary case. A command that
  // depends on a waiting operation is issued after it, so it cannot miss the change.
  std::atomic<bool> any_waiting_ = false;

  std::mutex deletes_mu_;                            // guards what follows
  std::vector<std::weak_ptr<Worker>> have_deletes_;  // that FlushDeletes will flush, soon, unless it is empty

  FanOut fan_out_;
  DelayedTasks delayed_deletes_;  // last: its thread uses the above
};

}  // namespace openpathways::cluster

#endif  // OPENPATHWAYS_CLUSTER_DISPATCHER_H_
