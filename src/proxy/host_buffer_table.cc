#include "proxy/host_buffer_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace openpathways::proxy {
namespace {

// A buffer that takes everything and keeps nothing.
ifrt::HostBufferRef DroppingBuffer(int64_t size) {
  auto buffer = std::make_shared<ifrt::HostBuffer>(size);
  ifrt::HostBuffer::Consumer consumer;
  consumer.piece = [](int64_t, transport::Buffer, absl::AnyInvocable<void()> consumed) { consumed(); };
  consumer.finished = [](const absl::Status&) {};
  buffer->Attach(std::move(consumer));
  return buffer;
}

absl::Status WrongSize(uint64_t handle, int64_t stored, int64_t wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("Host buffer ", handle, " has ", stored, " bytes, but the array needs ", wanted));
}

}  // namespace

absl::StatusOr<ifrt::HostBufferRef> HostBufferTable::BeginStore(uint64_t handle, int64_t size) {
  ifrt::HostBufferRef claimed;
  {
    absl::MutexLock lock(&mu_);
    if (!closed_.ok()) return closed_;
    if (outgoing_.contains(handle)) {
      return absl::AlreadyExistsError(absl::StrCat("Host buffer ", handle, " exists already"));
    }
    auto [it, is_new] = incoming_.try_emplace(handle);
    Incoming& entry = it->second;
    if (is_new) {
      entry.buffer = std::make_shared<ifrt::HostBuffer>(size);
      entry.stored = true;
      return entry.buffer;
    }
    if (entry.stored) return absl::AlreadyExistsError(absl::StrCat("Host buffer ", handle, " exists already"));
    claimed = std::move(entry.buffer);
    incoming_.erase(it);
  }
  if (claimed == nullptr) return DroppingBuffer(size);
  if (claimed->size() != size && claimed->size() != ifrt::HostBuffer::kUnknownSize) {
    claimed->Finish(WrongSize(handle, size, claimed->size()));
    return DroppingBuffer(size);
  }
  return claimed;
}

absl::StatusOr<ifrt::HostBufferRef> HostBufferTable::Claim(uint64_t handle, int64_t size) {
  ifrt::HostBufferRef stored;
  {
    absl::MutexLock lock(&mu_);
    if (!closed_.ok()) return closed_;
    auto [it, is_new] = incoming_.try_emplace(handle);
    Incoming& entry = it->second;
    if (is_new) {
      entry.buffer = std::make_shared<ifrt::HostBuffer>(size);
      return entry.buffer;
    }
    if (!entry.stored) return absl::InvalidArgumentError(absl::StrCat("Host buffer ", handle, " was used twice"));
    stored = std::move(entry.buffer);
    incoming_.erase(it);
  }
  if (stored->size() != size && size != ifrt::HostBuffer::kUnknownSize) {
    const absl::Status error = WrongSize(handle, stored->size(), size);
    stored->Finish(error);
    return error;
  }
  return stored;
}

void HostBufferTable::Discard(uint64_t handle) {
  ifrt::HostBufferRef dropped;
  {
    absl::MutexLock lock(&mu_);
    if (!closed_.ok()) return;
    auto [it, is_new] = incoming_.try_emplace(handle);
    // A new entry waits for its store, with no buffer. An entry that is not stored was claimed by another request.
    if (is_new || !it->second.stored) return;
    dropped = std::move(it->second.buffer);
    incoming_.erase(it);
  }
  dropped->Finish(absl::CancelledError("nobody wants the host buffer"));
}

absl::Status HostBufferTable::Publish(uint64_t handle, ifrt::HostDataRef data) {
  absl::MutexLock lock(&mu_);
  if (!closed_.ok()) return closed_;
  if (incoming_.contains(handle) || !outgoing_.try_emplace(handle, Outgoing{std::move(data)}).second) {
    return absl::AlreadyExistsError(absl::StrCat("Host buffer ", handle, " exists already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ifrt::HostDataRef> HostBufferTable::Read(uint64_t handle) {
  absl::MutexLock lock(&mu_);
  if (!closed_.ok()) return closed_;
  auto it = outgoing_.find(handle);
  if (it == outgoing_.end()) return absl::NotFoundError(absl::StrCat("Unknown host buffer handle: ", handle));
  if (it->second.data == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("Host buffer ", handle, " has been read already"));
  }
  return std::move(it->second.data);
}

absl::Status HostBufferTable::Delete(uint64_t handle) {
  ifrt::HostDataRef data;
  ifrt::HostBufferRef dropped;
  {
    absl::MutexLock lock(&mu_);
    if (!closed_.ok()) return closed_;
    if (auto it = outgoing_.find(handle); it != outgoing_.end()) {
      data = std::move(it->second.data);
      outgoing_.erase(it);
      return absl::OkStatus();
    }
    auto it = incoming_.find(handle);
    if (it == incoming_.end() || !it->second.stored) {
      return absl::NotFoundError(absl::StrCat("Unknown host buffer handle: ", handle));
    }
    dropped = std::move(it->second.buffer);
    incoming_.erase(it);
  }
  dropped->Finish(absl::CancelledError("the client deleted the host buffer"));
  return absl::OkStatus();
}

uint64_t HostBufferTable::AddCloseCallback(CloseCallback on_close) {
  absl::Status closed;
  {
    absl::MutexLock lock(&mu_);
    if (closed_.ok()) {
      close_callbacks_.emplace(next_callback_, std::move(on_close));
      return next_callback_++;
    }
    closed = closed_;
  }
  on_close(closed);
  return 0;
}

void HostBufferTable::RemoveCloseCallback(uint64_t id) {
  CloseCallback removed;
  absl::MutexLock lock(&mu_);
  auto it = close_callbacks_.find(id);
  if (it == close_callbacks_.end()) return;
  removed = std::move(it->second);
  close_callbacks_.erase(it);
}

void HostBufferTable::Close(const absl::Status& status) {
  absl::flat_hash_map<uint64_t, Incoming> incoming;
  absl::flat_hash_map<uint64_t, Outgoing> outgoing;
  absl::flat_hash_map<uint64_t, CloseCallback> callbacks;
  {
    absl::MutexLock lock(&mu_);
    if (!closed_.ok()) return;
    closed_ = status;
    incoming.swap(incoming_);
    outgoing.swap(outgoing_);
    callbacks.swap(close_callbacks_);
  }
  for (auto& [id, callback] : callbacks) callback(status);
  for (auto& [handle, entry] : incoming) {
    if (entry.buffer != nullptr) entry.buffer->Finish(status);
  }
}

size_t HostBufferTable::size() const {
  absl::MutexLock lock(&mu_);
  return incoming_.size() + outgoing_.size();
}

}  // namespace openpathways::proxy
