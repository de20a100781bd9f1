#include "worker/host_bytes.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace openpathways::worker {
namespace {

using BytesPromise = std::shared_ptr<Promise<HostBytes>>;

// Smaller payloads travel in the socket just as well.
constexpr size_t kMinMovedBytes = 16 << 10;

// What a view of device memory keeps alive and unchanged.
struct Held {
  PinRef pin;
  ValueRef value;
};

void CopyToArena(const std::shared_ptr<Held>& held, transport::Arena* arena, const BytesPromise& promise) {
  const absl::StatusOr<size_t> size = held->value->buffer->HostSize();
  if (!size.ok()) return promise->Set(size.status());
  absl::StatusOr<transport::Buffer> memory = arena->Allocate(*size);
  if (!memory.ok()) return promise->Set(AnnotateStatus(memory.status(), "host memory for reading an array"));
  Future<> copied = held->value->buffer->ToHost(memory->data(), memory->size());
  copied.OnReady([held, promise, memory = *memory](const absl::Status& status) {
    promise->Set(status.ok() ? absl::StatusOr<HostBytes>(HostBytes{memory, true}) : status);
  });
}

void GetReadyBytes(const std::shared_ptr<Held>& held, transport::Arena* arena, const BytesPromise& promise) {
  auto view = held->value->buffer->HostView();
  if (!view.has_value()) return CopyToArena(held, arena, promise);
  HostBytes bytes;
  bytes.bytes = transport::Buffer(held, const_cast<std::byte*>(view->data()), view->size());
  bytes.in_arena = view->data() == held->value->arena_data;
  promise->Set(std::move(bytes));
}

}  // namespace

Future<HostBytes> GetHostBytes(PinRef pin, transport::Arena* arena) {
  auto promise = std::make_shared<Promise<HostBytes>>();
  Future<HostBytes> bytes = promise->future();
  const Future<ValueRef> value = pin->buffer()->value();
  value.OnReady([pin = std::move(pin), arena, promise](const absl::StatusOr<ValueRef>& value) {
    if (!value.ok()) return promise->Set(value.status());
    if (const auto& host = (*value)->host; host.has_value()) {
      return promise->Set(HostBytes{host->bytes, host->in_arena});
    }
    auto held = std::make_shared<Held>(Held{pin, *value});
    (*value)->buffer->Ready().OnReady([held, arena, promise](const absl::Status& ready) {
      if (!ready.ok()) return promise->Set(ready);
      GetReadyBytes(held, arena, promise);
    });
  });
  return bytes;
}

Future<HostBytes> MoveToArena(const Future<HostBytes>& bytes, transport::Arena* arena, ThreadPool* pool) {
  auto promise = std::make_shared<Promise<HostBytes>>();
  bytes.OnReady([promise, arena, pool](const absl::StatusOr<HostBytes>& bytes) {
    if (!bytes.ok() || bytes->in_arena || bytes->bytes.size() < kMinMovedBytes) return promise->Set(bytes);
    pool->Post([promise, arena, source = bytes->bytes] {
      absl::StatusOr<transport::Buffer> memory = arena->Allocate(source.size());
      if (!memory.ok()) return promise->Set(HostBytes{source, false});  // travels as it is, only slower
      std::memcpy(memory->data(), source.data(), source.size());
      promise->Set(HostBytes{*memory, true});
    });
  });
  return promise->future();
}

}  // namespace openpathways::worker
