#include "ifrt/shard.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "ifrt/client_status.h"

namespace openpathways::ifrt {
namespace {

// Data up to this size come with the answer to the read request.
constexpr int64_t kMaxInlineRead = 1 << 20;

class InlineHostData : public HostData {
 public:
  explicit InlineHostData(transport::Buffer data) : data_(std::move(data)) {}
  int64_t size() const override { return static_cast<int64_t>(data_.size()); }
  Future<transport::Buffer> Next(int64_t max_size) override {
    const size_t size = std::min(data_.size() - offset_, static_cast<size_t>(std::max<int64_t>(max_size, 0)));
    transport::Buffer piece = data_.Slice(offset_, size);
    offset_ += size;
    return Future<transport::Buffer>(std::move(piece));
  }

 private:
  const transport::Buffer data_;
  size_t offset_ = 0;
};

// Data that stay on their worker, under the number of the read request, until they are fetched or dropped.
class RemoteHostData : public HostData {
 public:
  RemoteHostData(cluster::WorkerRef worker, uint64_t request, int64_t size)
      : worker_(std::move(worker)), request_(request), size_(size), complete_(std::make_shared<std::atomic<bool>>()) {}
  ~RemoteHostData() override {
    if (!complete_->load()) worker_->ReadCancel(request_);
  }
  int64_t size() const override { return size_; }
  Future<transport::Buffer> Next(int64_t max_size) override {
    if (asked_ >= size_) return Future<transport::Buffer>(transport::Buffer());
    asked_ += std::clamp<int64_t>(max_size, 0, size_ - asked_);
    Promise<transport::Buffer> promise;
    Future<transport::Buffer> future = promise.future();
    worker_->ReadNext(
        request_, max_size,
        [promise = std::move(promise), complete = complete_](absl::StatusOr<cluster::ReadPiece> piece) mutable {
          if (!piece.ok()) return promise.Set(ForClient(piece.status()));
          if (piece->last) complete->store(true);
          promise.Set(std::move(piece->data));
        });
    return future;
  }

 private:
  const cluster::WorkerRef worker_;
  const uint64_t request_;
  const int64_t size_;
  int64_t asked_ = 0;
  const std::shared_ptr<std::atomic<bool>> complete_;  // the worker has sent all of it
};

}  // namespace

Future<> AwaitShards(const std::vector<ShardRef>& shards) {
  if (shards.empty()) return Future<>(absl::OkStatus());
  cluster::Dispatcher& dispatcher = *shards.front()->dispatcher();
  cluster::Operation operation;
  absl::flat_hash_map<const cluster::Worker*, size_t> index;
  for (const ShardRef& shard : shards) {
    auto [found, is_new] = index.try_emplace(shard->worker().get(), operation.parts.size());
    if (is_new) operation.parts.push_back({shard->worker(), cluster::Outgoing()});
    operation.parts[found->second].outgoing.command.mutable_await()->add_buffers(shard->buffer());
  }
  std::vector<Future<>> all;
  all.reserve(operation.parts.size());
  for (auto& [worker, outgoing] : operation.parts) {
    Promise<> promise;
    all.push_back(promise.future());
    outgoing.request = dispatcher.NewNames();
    outgoing.command.mutable_await()->set_request(outgoing.request);
    outgoing.on_reply = [promise = std::move(promise)](absl::StatusOr<cluster::Reply> reply) mutable {
      promise.Set(ForClient(reply.status()));
    };
  }
  dispatcher.Dispatch(std::move(operation));
  return all.size() == 1 ? all.front() : WhenAll(all);
}

Future<HostDataRef> ReadShard(const ShardRef& shard) {
  Promise<HostDataRef> promise;
  Future<HostDataRef> future = promise.future();
  cluster::Outgoing outgoing;
  outgoing.request = shard->dispatcher()->NewNames();
  worker::ReadBuffer* read = outgoing.command.mutable_read_buffer();
  read->set_request(outgoing.request);
  read->set_buffer(shard->buffer());
  read->set_max_inline(kMaxInlineRead);
  outgoing.on_reply = [promise = std::move(promise), worker = shard->worker(),
                       request = outgoing.request](absl::StatusOr<cluster::Reply> reply) mutable {
    if (!reply.ok()) return promise.Set(ForClient(reply.status()));
    if (static_cast<int64_t>(reply->data.size()) == reply->size) {
      return promise.Set(std::make_shared<InlineHostData>(std::move(reply->data)));
    }
    promise.Set(std::make_shared<RemoteHostData>(std::move(worker), request, reply->size));
  };
  shard->dispatcher()->Send(shard->worker(), std::move(outgoing));
  return future;
}

}  // namespace openpathways::ifrt
