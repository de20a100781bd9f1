#include "worker/named_buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace openpathways::worker {

int ElementTypeOf(const Value& value) {
  return value.buffer != nullptr ? value.buffer->element_type() : value.host->element_type;
}

const std::vector<int64_t>& DimsOf(const Value& value) {
  return value.buffer != nullptr ? value.buffer->dimensions() : value.host->dims;
}

NamedBuffer::NamedBuffer(std::shared_ptr<Stats> stats, Maker maker)
    : stats_(std::move(stats)), maker_(maker), value_(promise_.future()) {
  stats_->buffers.fetch_add(1, std::memory_order_relaxed);
}

NamedBuffer::~NamedBuffer() {
  stats_->buffers.fetch_sub(1, std::memory_order_relaxed);
  stats_->buffer_bytes.fetch_sub(bytes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void NamedBuffer::Set(absl::StatusOr<ValueRef> value) {
  if (value.ok()) {
    const Value& set = **value;
    const size_t size = set.buffer != nullptr ? set.buffer->HostSize().value_or(0) : set.host->bytes.size();
    const auto bytes = static_cast<int64_t>(size);
    bytes_.store(bytes, std::memory_order_relaxed);
    stats_->buffer_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  promise_.Set(std::move(value));
}

void NamedBuffer::SetBuffer(absl::StatusOr<std::unique_ptr<pjrt::Buffer>> buffer, const std::byte* arena_data) {
  if (!buffer.ok()) {
    Set(buffer.status());
    return;
  }
  auto value = std::make_shared<Value>();
  value->buffer = *std::move(buffer);
  value->arena_data = arena_data;
  Set(std::move(value));
}

void NamedBuffer::SetHost(HostValue host) {
  auto value = std::make_shared<Value>();
  value->host = std::move(host);
  Set(std::move(value));
}

Future<> NamedBuffer::Ready() const {
  auto promise = std::make_shared<Promise<>>();
  Future<> ready = promise->future();
  value_.OnReady([promise](const absl::StatusOr<ValueRef>& value) {
    if (!value.ok()) {
      promise->Set(value.status());
      return;
    }
    if ((*value)->buffer == nullptr) return promise->Set(absl::OkStatus());
    // The value is held until its data is there: a buffer that is deleted meanwhile still resolves.
    (*value)->buffer->Ready().OnReady([promise, held = *value](const absl::Status& status) { promise->Set(status); });
  });
  return ready;
}

absl::StatusOr<NamedBufferRef> BufferTable::Make(uint64_t id, NamedBuffer::Maker maker) {
  if (id == 0) return absl::InvalidArgumentError("0 is no buffer number");
  auto [entry, is_new] = buffers_.try_emplace(id);
  if (!is_new) return absl::AlreadyExistsError(absl::StrCat("buffer ", id, " exists already"));
  entry->second = std::make_shared<NamedBuffer>(stats_, maker);
  return entry->second;
}

NamedBufferRef BufferTable::Find(uint64_t id) const {
  if (auto it = buffers_.find(id); it != buffers_.end()) return it->second;
  auto unknown = std::make_shared<NamedBuffer>(stats_, NamedBuffer::Maker::kOther);
  unknown->Set(absl::NotFoundError(absl::StrCat("buffer ", id, " does not exist on this worker")));
  return unknown;
}

absl::Status BufferTable::Delete(uint64_t id) {
  if (buffers_.erase(id) == 0) return absl::NotFoundError(absl::StrCat("buffer ", id, " does not exist"));
  return absl::OkStatus();
}

void BufferTable::Clear() { buffers_.clear(); }

}  // namespace openpathways::worker
