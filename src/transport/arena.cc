#include "transport/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/machine.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace openpathways::transport {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPageSize = 4096;
constexpr size_t kSlabSize = size_t{4} << 20;
constexpr size_t kMaxSlabBlock = size_t{256} << 10;
constexpr size_t kHugePageSize = size_t{2} << 20;

size_t RoundUp(size_t size, size_t step) { return (size + step - 1) / step * step; }

// Sizes are rounded so that a freed block fits later requests of about its size; at most a quarter (small blocks) or an
// eighth (own segments) is lost.
size_t BlockSize(size_t size) {
  if (size <= 8 * kAlignment) return RoundUp(size, kAlignment);
  const size_t octave = std::bit_floor(size - 1);
  if (size <= kMaxSlabBlock) return RoundUp(size, octave / 4);
  return RoundUp(size, std::max(octave / 8, kPageSize));
}

// Half of the descriptors that the process may open: sockets and files need some too.
size_t DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) / 2;
}

UniqueFd CreateMemoryFile(size_t size) {
  UniqueFd fd(memfd_create("openpathways", MFD_CLOEXEC | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) {  // a kernel before 6.3
    fd = UniqueFd(memfd_create("openpathways", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  if (!fd.valid()) return fd;
  // Receivers insist on the seal: a file that shrinks kills those who read it.
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    fd.reset();
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Segment>> Segment::Create(uint64_t id, size_t size, bool shareable) {
  UniqueFd fd;
  if (shareable) {
    fd = CreateMemoryFile(size);
    if (!fd.valid()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot create a memory file of ", size, " bytes: ", std::strerror(errno)));
    }
  }
  const int flags = shareable ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", size, " bytes: ", std::strerror(errno)));
  }
  // Only advice: many kernels have no huge pages for memory files.
  if (size >= kHugePageSize) madvise(data, size, MADV_HUGEPAGE);
  return std::shared_ptr<Segment>(new Segment(id, static_cast<std::byte*>(data), size, std::move(fd)));
}

Segment::~Segment() { munmap(data_, size_); }

std::shared_ptr<SharedArena> SharedArena::Create(size_t cache_bytes) {
  return std::shared_ptr<SharedArena>(new SharedArena(cache_bytes));
}

// An eighth of the memory is left for the rest of the process: whoever goes beyond what a container has is killed,
// without an error that could tell a client why. No more than an eighth is kept for nothing.
SharedArena::SharedArena(size_t cache_bytes)
    : cache_limit_(std::min(cache_bytes, MemoryLimit() / 8)),
      memory_limit_(MemoryLimit() / 8 * 7),
      descriptor_limit_(DescriptorLimit()) {}

absl::StatusOr<Buffer> SharedArena::Allocate(size_t size) {
  if (size == 0) return Buffer();
  Segments evicted;
  absl::StatusOr<std::byte*> data = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    data = AllocateBlock(size, evicted);
    if (data.ok()) allocated_ += size;
  }
  TellListeners(evicted);
  RETURN_IF_ERROR(data.status());
  std::shared_ptr<void> owner(static_cast<void*>(*data), [arena = shared_from_this(), size](void* block) {
    arena->Free(static_cast<std::byte*>(block), size);
  });
  return Buffer(std::move(owner), *data, size);
}

absl::StatusOr<std::byte*> SharedArena::AllocateBlock(size_t size, Segments& evicted) {
  // Checked before rounding, which could overflow.
  if (size > memory_limit_) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", size,
                                                     " bytes of payload memory: the limit is ", memory_limit_,
                                                     " bytes, ", allocated_, " bytes are in use"));
  }
  const size_t block_size = BlockSize(size);
  if (block_size <= kMaxSlabBlock) return AllocateFromSlab(block_size, evicted);
  ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment, TakeSegment(block_size, evicted));
  return segment->data();
}

absl::StatusOr<std::byte*> SharedArena::AllocateFromSlab(size_t block_size, Segments& evicted) {
  std::list<Slab*>& open = open_slabs_[block_size];
  if (open.empty()) {
    ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment, TakeSegment(kSlabSize, evicted));
    auto slab = std::make_unique<Slab>();
    slab->segment = segment;
    slab->block_size = block_size;
    slab->in = open.insert(open.end(), slab.get());
    slabs_.emplace(segment.get(), std::move(slab));
  }
  Slab& slab = *open.front();
  size_t index;
  if (slab.free.empty()) {
    index = slab.fresh++;
  } else {
    index = slab.free.back();
    slab.free.pop_back();
  }
  ++slab.live;
  if (slab.full()) open.erase(slab.in);
  return slab.segment->data() + index * block_size;
}

absl::StatusOr<std::shared_ptr<Segment>> SharedArena::TakeSegment(size_t size, Segments& evicted) {
  if (std::shared_ptr<Segment> segment = TakeFromCache(size)) return segment;
  if (mapped_ + size > memory_limit_) {
    const size_t excess = mapped_ + size - memory_limit_;
    EvictDownTo(excess < cached_ ? cached_ - excess : 0, evicted);
  }
  if (mapped_ + size > memory_limit_) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", size,
                                                     " bytes of payload memory: the limit is ", memory_limit_,
                                                     " bytes, ", allocated_, " bytes are in use"));
  }
  return NewSegment(size);
}

std::shared_ptr<Segment> SharedArena::TakeFromCache(size_t size) {
  auto it = cache_.lower_bound(size);
  // Slabs need their exact size; others may waste a quarter.
  const size_t largest = size == kSlabSize ? size : size + size / 4;
  if (it == cache_.end() || it->first > largest) return nullptr;
  std::shared_ptr<Segment> segment = std::move(it->second.segment);
  by_age_.erase(it->second.age);
  cache_.erase(it);
  cached_ -= segment->size();
  return segment;
}

absl::StatusOr<std::shared_ptr<Segment>> SharedArena::NewSegment(size_t size) {
  absl::StatusOr<std::shared_ptr<Segment>> segment = absl::ResourceExhaustedError("too many descriptors");
  if (descriptors_ < descriptor_limit_) segment = Segment::Create(next_id_, size, /*shareable=*/true);
  if (!segment.ok()) {
    spdlog::debug("payload memory of {} bytes is not shared: {}", size, segment.status().ToString());
    segment = Segment::Create(next_id_, size, /*shareable=*/false);
  }
  RETURN_IF_ERROR(segment.status());
  ++next_id_;
  mapped_ += size;
  if ((*segment)->shareable()) ++descriptors_;
  segments_.emplace((*segment)->data(), *segment);
  return segment;
}

void SharedArena::EvictDownTo(size_t bytes, Segments& evicted) {
  while (cached_ > bytes) {
    Cache::iterator oldest = by_age_.begin()->second;
    by_age_.erase(by_age_.begin());
    std::shared_ptr<Segment> segment = std::move(oldest->second.segment);
    cache_.erase(oldest);
    cached_ -= segment->size();
    Forget(std::move(segment), evicted);
  }
}

void SharedArena::Retire(std::shared_ptr<Segment> segment, Segments& evicted) {
  const size_t size = segment->size();
  if (!segment->shareable() || size > cache_limit_) {
    Forget(std::move(segment), evicted);
    return;
  }
  EvictDownTo(cache_limit_ - size, evicted);
  cached_ += size;
  const uint64_t age = next_age_++;
  by_age_.emplace(age, cache_.emplace(size, Cached{std::move(segment), age}));
}

void SharedArena::Forget(std::shared_ptr<Segment> segment, Segments& evicted) {
  mapped_ -= segment->size();
  if (segment->shareable()) --descriptors_;
  segments_.erase(segment->data());
  evicted.push_back(std::move(segment));
}

void SharedArena::Free(std::byte* data, size_t size) {
  Segments evicted;
  {
    std::lock_guard<std::mutex> lock(mu_);
    allocated_ -= size;
    FreeBlock(data, evicted);
  }
  TellListeners(evicted);
}

void SharedArena::FreeBlock(std::byte* data, Segments& evicted) {
  auto segment = std::prev(segments_.upper_bound(data))->second;
  auto it = slabs_.find(segment.get());
  if (it == slabs_.end()) {
    Retire(std::move(segment), evicted);
    return;
  }
  Slab& slab = *it->second;
  std::list<Slab*>& open = open_slabs_[slab.block_size];
  if (slab.full()) slab.in = open.insert(open.begin(), &slab);
  slab.free.push_back(static_cast<uint32_t>((data - segment->data()) / slab.block_size));
  --slab.live;
  // The last slab of a size stays, or a single block that comes and goes would make and unmake it each time.
  if (slab.live == 0 && open.size() > 1) {
    open.erase(slab.in);
    slabs_.erase(it);
    Retire(std::move(segment), evicted);
  }
}

size_t SharedArena::allocated_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  return allocated_;
}

size_t SharedArena::cached_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  return cached_;
}

std::optional<SharedArena::Location> SharedArena::Find(const std::byte* data, size_t size) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto it = segments_.upper_bound(data);
  if (it == segments_.begin()) return std::nullopt;
  const std::shared_ptr<Segment>& segment = std::prev(it)->second;
  const size_t offset = data - segment->data();
  if (!segment->shareable() || offset >= segment->size() || size > segment->size() - offset) return std::nullopt;
  return Location{segment, offset};
}

void SharedArena::AddListener(std::weak_ptr<SegmentListener> listener) {
  std::lock_guard<std::mutex> lock(listeners_mu_);
  std::erase_if(listeners_, [](const auto& known) { return known.expired(); });
  listeners_.push_back(std::move(listener));
}

void SharedArena::TellListeners(const Segments& freed) {
  if (freed.empty()) return;
  std::vector<std::weak_ptr<SegmentListener>> listeners;
  {
    std::lock_guard<std::mutex> lock(listeners_mu_);
    listeners = listeners_;
  }
  for (const auto& weak : listeners) {
    if (std::shared_ptr<SegmentListener> listener = weak.lock()) {
      for (const auto& segment : freed) listener->OnSegmentFreed(segment->id());
    }
  }
}

}  // namespace openpathways::transport
