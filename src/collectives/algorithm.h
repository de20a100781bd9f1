// What one execution of one collective by one group computes and sends, seen from one worker.
//
// An Algorithm is a little state machine. Launch drives it: it hands in what peers sent, asks for the next step and
// runs it. One thread at a time is inside; there are no locks and nothing waits.
#ifndef OPENPATHWAYS_COLLECTIVES_ALGORITHM_H_
#define OPENPATHWAYS_COLLECTIVES_ALGORITHM_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "collectives/instruction.h"
#include "collectives/message.h"
#include "collectives/work.h"

namespace openpathways::collectives {

// Sends this collective's messages. Cheap to copy.
class Link {
 public:
  Link(PeerNetwork* network, LaunchKey launch, CollectiveId collective)
      : network_(network), launch_(launch), collective_(collective) {}

  // Memory for a payload. RESOURCE_EXHAUSTED if there is none.
  absl::StatusOr<transport::Buffer> Allocate(size_t size) const;
  void Send(WorkerId peer, uint32_t step, const transport::Buffer& payload) const;
  // A number that all workers have in common and that changes from collective to collective: whose turn it is to do
  // what only one has to do.
  uint64_t turn() const;

 private:
  PeerNetwork* network_;
  LaunchKey launch_;
  CollectiveId collective_;
};

// A local device's memory, in the order of the group's local members.
struct LocalArrays {
  std::vector<const std::byte*> operands;
  std::vector<std::byte*> results;
};

struct Step {
  enum class Kind {
    kWork,  // run `work`, then ask again
    kWait,  // ask again after the next Receive
    kDone,  // the results are complete
  } kind;
  Work work;

  static Step Run(Work work) { return {Kind::kWork, std::move(work)}; }
  static Step Wait() { return {Kind::kWait, {}}; }
  static Step Done() { return {Kind::kDone, {}}; }
};

class Algorithm {
 public:
  struct Context {
    std::shared_ptr<const Instruction> instruction;
    const Group* group;  // of `instruction`
    std::vector<LocalArrays> local;
    Link link;
  };
  static std::unique_ptr<Algorithm> Create(Context context);

  virtual ~Algorithm() = default;

  // A payload of another worker (position in group().workers) arrived. An error if it does not fit: the peers disagree
  // about the instruction.
  absl::Status Receive(int worker, uint32_t step, transport::Buffer payload);

  // Any error fails the whole launch.
  virtual absl::StatusOr<Step> Next() = 0;

 protected:
  Algorithm(Context context, uint32_t num_steps)
      : context_(std::move(context)), received_(context_.group->num_workers() * num_steps) {}

  // `step` is one of the algorithm's and came from this worker for the first time.
  virtual absl::Status Accept(int worker, uint32_t step, transport::Buffer payload) = 0;

  const Instruction& instruction() const { return *context_.instruction; }
  const Group& group() const { return *context_.group; }
  const Link& link() const { return context_.link; }
  const std::vector<LocalArrays>& local() const { return context_.local; }
  // Of a member that lives here.
  const LocalArrays& local_of(int member) const { return context_.local[group().members[member].local]; }
  // The `i`-th other worker, beginning behind this one, so that not all send to the same at first.
  int peer(int i) const { return (group().self + 1 + i) % group().num_workers(); }
  int num_peers() const { return group().num_workers() - 1; }
  absl::Status CheckPayload(int worker, const transport::Buffer& payload, size_t expected) const;

 private:
  Context context_;
  std::vector<bool> received_;  // [step][worker]
};

// The kinds' own factories, one per file.
std::unique_ptr<Algorithm> MakeAllReduce(Algorithm::Context context);
std::unique_ptr<Algorithm> MakeReduceScatter(Algorithm::Context context);
std::unique_ptr<Algorithm> MakeExchange(Algorithm::Context context);  // kinds of blocks.h
std::unique_ptr<Algorithm> MakeRaggedAllToAll(Algorithm::Context context);

}  // namespace openpathways::collectives

#endif  // OPENPATHWAYS_COLLECTIVES_ALGORITHM_H_
