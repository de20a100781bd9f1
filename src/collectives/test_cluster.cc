#include "collectives/test_cluster.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace openpathways::collectives {

// Where payloads live. Outlives the cluster by reference counting.
class TestCluster::Memory : public std::enable_shared_from_this<Memory> {
 public:
  Memory(size_t limit, bool reuse) : limit_(limit), reuse_(reuse) {}
  ~Memory() {
    for (auto& [size, blocks] : idle_) {
      for (void* block : blocks) std::free(block);
    }
  }

  absl::StatusOr<transport::Buffer> Allocate(size_t size) {
    if (size > limit_) return absl::ResourceExhaustedError(absl::StrCat(size, " of ", limit_, " bytes"));
    void* block = nullptr;
    {
      std::lock_guard lock(mu_);
      allocated_ += size;
      if (std::vector<void*>& blocks = idle_[size]; !blocks.empty()) {
        block = blocks.back();
        blocks.pop_back();
      }
    }
    if (block == nullptr) block = std::aligned_alloc(64, (size + 63) / 64 * 64);
    std::shared_ptr<void> owner(block, [size, memory = shared_from_this()](void* p) { memory->Free(p, size); });
    return transport::Buffer(std::move(owner), static_cast<std::byte*>(block), size);
  }

  size_t allocated_bytes() {
    std::lock_guard lock(mu_);
    return allocated_;
  }

 private:
  void Free(void* block, size_t size) {
    std::lock_guard lock(mu_);
    allocated_ -= size;
    if (reuse_) {
      idle_[size].push_back(block);
    } else {
      std::free(block);
    }
  }

  const size_t limit_;
  const bool reuse_;
  std::mutex mu_;
  size_t allocated_ = 0;
  std::map<size_t, std::vector<void*>> idle_;
};

// One worker's way to the others.
class TestCluster::Network : public PeerNetwork {
 public:
  Network(TestCluster* cluster, WorkerId self) : cluster_(cluster), self_(self) {}

  void Send(WorkerId peer, std::string header, transport::Buffer payload) override {
    cluster_->Send(self_, peer, std::move(header), std::move(payload));
  }
  absl::StatusOr<transport::Buffer> Allocate(size_t size) override { return cluster_->memory_->Allocate(size); }

 private:
  TestCluster* const cluster_;
  const WorkerId self_;
};

TestCluster::TestCluster(const Options& options)
    : memory_(std::make_shared<Memory>(options.memory_limit, options.reuse_memory)),
      disconnected_(options.workers + 1) {
  for (int w = 1; w <= options.workers; ++w) {
    networks_.push_back(std::make_unique<Network>(this, w));
    engines_.push_back(Engine::Create(w, networks_.back().get(), options.compute_threads));
  }
  for (int i = 0; i < options.delivery_threads; ++i) {
    delivery_.emplace_back([this, seed = options.seed * 1000 + i] { DeliveryMain(seed); });
  }
}

TestCluster::~TestCluster() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : delivery_) thread.join();
  engines_.clear();
}

size_t TestCluster::allocated_bytes() const { return memory_->allocated_bytes(); }

void TestCluster::Send(WorkerId from, WorkerId to, std::string header, transport::Buffer payload) {
  ++messages_sent_;
  bytes_sent_ += static_cast<int64_t>(header.size() + payload.size());
  std::lock_guard lock(mu_);
  if (disconnected_[from] || disconnected_[to]) return;
  routes_[{from, to}].messages.push_back({std::move(header), std::move(payload)});
  changed_.notify_one();
}

bool TestCluster::HasDeliverable() const {
  if (stopping_) return true;
  if (paused_) return false;
  for (const auto& [pair, route] : routes_) {
    if (!route.delivering && !route.messages.empty()) return true;
  }
  return false;
}

bool TestCluster::IsIdle() const {
  for (const auto& [pair, route] : routes_) {
    if (route.delivering || !route.messages.empty()) return false;
  }
  return true;
}

void TestCluster::DeliveryMain(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (;;) {
    Pair pair;
    Envelope envelope;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return HasDeliverable(); });
      if (stopping_) return;
      std::vector<Pair> candidates;
      for (const auto& [p, route] : routes_) {
        if (!route.delivering && !route.messages.empty()) candidates.push_back(p);
      }
      pair = candidates[random() % candidates.size()];
      Route& route = routes_[pair];
      route.delivering = true;
      envelope = std::move(route.messages.front());
      route.messages.pop_front();
    }
    engine(pair.second).OnMessage(pair.first, envelope.header, std::move(envelope.payload));
    std::lock_guard lock(mu_);
    routes_[pair].delivering = false;
    changed_.notify_all();
  }
}

void TestCluster::Pause() {
  std::lock_guard lock(mu_);
  paused_ = true;
}

void TestCluster::Resume() {
  std::lock_guard lock(mu_);
  paused_ = false;
  changed_.notify_all();
}

void TestCluster::Drain() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return IsIdle(); });
}

void TestCluster::Disconnect(WorkerId worker) {
  std::lock_guard lock(mu_);
  disconnected_[worker] = true;
  for (auto& [pair, route] : routes_) {
    if (pair.first == worker || pair.second == worker) route.messages.clear();
  }
  changed_.notify_all();
}

}  // namespace openpathways::collectives
