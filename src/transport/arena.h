// The Arena of this process: blocks in memory files (memfd) that other processes of the host can map.
//
// Blocks up to 256 KiB are cut out of 4 MiB segments, each for one block size; bigger ones have a segment of their own.
// Idle segments are kept for reuse up to a bound, because their pages and the peers' mappings of them are worth
// keeping. If the process may open no more descriptors, blocks come from ordinary memory, which is never shared but
// works.
//
// Thread-safe. Held by shared_ptr: every live buffer keeps the arena.
#ifndef OPENPATHWAYS_TRANSPORT_ARENA_H_
#define OPENPATHWAYS_TRANSPORT_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "transport/buffer.h"
#include "transport/unique_fd.h"

namespace openpathways::transport {

// One mapped range of memory. Immutable, thread-safe.
class Segment {
 public:
  // With a memory file if `shareable`, else anonymous memory. RESOURCE_EXHAUSTED if the kernel refuses.
  static absl::StatusOr<std::shared_ptr<Segment>> Create(uint64_t id, size_t size, bool shareable);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  uint64_t id() const { return id_; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool shareable() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

 private:
  Segment(uint64_t id, std::byte* data, size_t size, UniqueFd fd)
      : id_(id), data_(data), size_(size), fd_(std::move(fd)) {}
  const uint64_t id_;
  std::byte* const data_;
  const size_t size_;
  const UniqueFd fd_;
};

// Is told about segments that have gone back to the kernel, so that peers can drop their mappings.
class SegmentListener {
 public:
  virtual ~SegmentListener() = default;
  // On any thread, with no lock of the arena held.
  virtual void OnSegmentFreed(uint64_t segment_id) = 0;
};

class SharedArena final : public Arena, public std::enable_shared_from_this<SharedArena> {
 public:
  static std::shared_ptr<SharedArena> Create(size_t cache_bytes);

  absl::StatusOr<Buffer> Allocate(size_t size) override;
  size_t allocated_bytes() const override;

  struct Location {
    std::shared_ptr<Segment> segment;
    uint64_t offset;
  };
  // Where [data, data + size) lies, if it lies in one segment of this arena that can be shared.
  std::optional<Location> Find(const std::byte* data, size_t size) const;

  void AddListener(std::weak_ptr<SegmentListener> listener);

  // Bytes that are kept for reuse in idle segments; for tests.
  size_t cached_bytes() const;

 private:
  // A segment cut into blocks of one size.
  struct Slab {
    std::shared_ptr<Segment> segment;
    size_t block_size = 0;
    size_t fresh = 0;               // blocks from here on were never used
    std::vector<uint32_t> free;     // used and free again: last in, first out
    size_t live = 0;                // blocks in use
    std::list<Slab*>::iterator in;  // place in open_slabs_, if it has room
    size_t capacity() const { return segment->size() / block_size; }
    bool full() const { return live == capacity(); }
  };
  struct Cached {
    std::shared_ptr<Segment> segment;
    uint64_t age;
  };
  using Cache = std::multimap<size_t, Cached>;
  using Segments = std::vector<std::shared_ptr<Segment>>;

  explicit SharedArena(size_t cache_bytes);

  // With mu_ held:
  absl::StatusOr<std::byte*> AllocateBlock(size_t size, Segments& evicted);
  absl::StatusOr<std::byte*> AllocateFromSlab(size_t block_size, Segments& evicted);
  absl::StatusOr<std::shared_ptr<Segment>> TakeSegment(size_t size, Segments& evicted);
  absl::StatusOr<std::shared_ptr<Segment>> NewSegment(size_t size);
  std::shared_ptr<Segment> TakeFromCache(size_t size);
  void EvictDownTo(size_t bytes, Segments& evicted);
  void Retire(std::shared_ptr<Segment> segment, Segments& evicted);
  void Forget(std::shared_ptr<Segment> segment, Segments& evicted);

  void FreeBlock(std::byte* data, Segments& evicted);

  // Without:
  void Free(std::byte* data, size_t size);
  void TellListeners(const Segments& freed);

  const size_t cache_limit_;
  const size_t memory_limit_;      // of all segments together
  const size_t descriptor_limit_;  // segments with a descriptor

  mutable std::mutex mu_;
  // Guarded by mu_:
  size_t allocated_ = 0;
  size_t mapped_ = 0;
  size_t cached_ = 0;
  size_t descriptors_ = 0;
  uint64_t next_id_ = 1;
  uint64_t next_age_ = 1;
  std::map<const std::byte*, std::shared_ptr<Segment>> segments_;  // by address
  absl::flat_hash_map<const Segment*, std::unique_ptr<Slab>> slabs_;
  absl::flat_hash_map<size_t, std::list<Slab*>> open_slabs_;  // with room, by block size
  Cache cache_;                                               // idle segments by size
  std::map<uint64_t, Cache::iterator> by_age_;

  std::mutex listeners_mu_;  // guards listeners_
  std::vector<std::weak_ptr<SegmentListener>> listeners_;
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_ARENA_H_
