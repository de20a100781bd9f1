#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pjrt/client.h"

namespace openpathways::pjrt {

BufferImpl::~BufferImpl() {
  auto args = MakeArgs<PJRT_Buffer_Destroy_Args>();
  args.buffer = c_;
  client_->api().ToStatus(client_->api()->PJRT_Buffer_Destroy(&args)).IgnoreError();  // nobody is left to tell
}

Future<> BufferImpl::Ready() const {
  absl::MutexLock lock(&mu_);
  if (!ready_.has_value()) {
    auto args = MakeArgs<PJRT_Buffer_ReadyEvent_Args>();
    args.buffer = c_;
    absl::Status status = client_->api().ToStatus(client_->api()->PJRT_Buffer_ReadyEvent(&args));
    ready_ = status.ok() ? client_->api().ToFuture(args.event) : Future<>(status);
  }
  return *ready_;
}

absl::StatusOr<size_t> BufferImpl::HostSize() const { return DenseHostSize(element_type(), dimensions()); }

Future<> BufferImpl::ToHost(void* dst, size_t size) const {
  absl::StatusOr<size_t> needed = HostSize();
  if (!needed.ok()) return Future<>(needed.status());
  if (size < *needed) {
    return Future<>(absl::InvalidArgumentError(
        absl::StrCat("host memory of ", size, " bytes for an array of ", *needed, " bytes")));
  }
  // Without data there is nothing to copy, but the producer's error still counts.
  if (*needed == 0) return Ready();

  std::vector<int64_t> minor_to_major(dimensions().size());
  std::iota(minor_to_major.rbegin(), minor_to_major.rend(), 0);
  auto layout = MakeArgs<PJRT_Buffer_MemoryLayout>();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = MakeArgs<PJRT_Buffer_MemoryLayout_Tiled>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = MakeArgs<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = c_;
  args.host_layout = &layout;
  args.dst = dst;
  args.dst_size = size;
  absl::Status status = client_->api().ToStatus(client_->api()->PJRT_Buffer_ToHostBuffer(&args));
  return status.ok() ? client_->api().ToFuture(args.event) : Future<>(status);
}

absl::StatusOr<std::vector<int64_t>> BufferImpl::MinorToMajor() const {
  auto args = MakeArgs<PJRT_Buffer_GetMemoryLayout_Args>();
  args.buffer = c_;
  RETURN_IF_ERROR(client_->api().ToStatus(client_->api()->PJRT_Buffer_GetMemoryLayout(&args)));
  const PJRT_Buffer_MemoryLayout_Tiled& tiled = args.layout.tiled;
  if (args.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled || tiled.num_tiles != 0) {
    return absl::UnimplementedError("the device layout is no order of dimensions");
  }
  return std::vector<int64_t>(tiled.minor_to_major, tiled.minor_to_major + tiled.minor_to_major_size);
}

absl::StatusOr<size_t> BufferImpl::OnDeviceSize() const {
  auto args = MakeArgs<PJRT_Buffer_OnDeviceSizeInBytes_Args>();
  args.buffer = c_;
  RETURN_IF_ERROR(client_->api().ToStatus(client_->api()->PJRT_Buffer_OnDeviceSizeInBytes(&args)));
  return args.on_device_size_in_bytes;
}

absl::StatusOr<void*> BufferImpl::Address() const {
  auto args = MakeArgs<PJRT_Buffer_UnsafePointer_Args>();
  args.buffer = c_;
  RETURN_IF_ERROR(client_->api().ToStatus(client_->api()->PJRT_Buffer_UnsafePointer(&args)));
  return reinterpret_cast<void*>(args.buffer_pointer);
}

bool BufferImpl::IsDenseRowMajor() const {
  const absl::StatusOr<std::vector<int64_t>> order = MinorToMajor();
  if (!order.ok() || order->size() != dimensions().size()) return false;
  for (size_t i = 0; i < order->size(); ++i) {
    if ((*order)[i] != static_cast<int64_t>(order->size() - 1 - i)) return false;
  }
  return true;
}

std::optional<absl::Span<const std::byte>> BufferImpl::HostView() const {
  absl::StatusOr<int> bits = ElementBits(element_type());
  absl::StatusOr<size_t> size = HostSize();
  if (!client_->is_cpu() || !bits.ok() || *bits % 8 != 0 || !size.ok() || !IsDenseRowMajor()) return std::nullopt;
  Future<> ready = Ready();
  if (!ready.IsReady() || !ready.Await().ok()) return std::nullopt;
  absl::StatusOr<void*> address = Address();
  if (!address.ok()) return std::nullopt;
  return absl::MakeConstSpan(static_cast<const std::byte*>(*address), *size);
}

absl::StatusOr<std::unique_ptr<Buffer>> BufferImpl::CopyTo(Memory* memory) const {
  auto args = MakeArgs<PJRT_Buffer_CopyToMemory_Args>();
  args.buffer = c_;
  args.dst_memory = static_cast<MemoryImpl*>(memory)->c();
  const Api& api = client_->api();
  RETURN_IF_ERROR(api.ToStatus(api->PJRT_Buffer_CopyToMemory(&args)));
  auto device_args = MakeArgs<PJRT_Buffer_Device_Args>();
  device_args.buffer = args.dst_buffer;
  absl::Status status = api.ToStatus(api->PJRT_Buffer_Device(&device_args));
  absl::StatusOr<Device*> device = nullptr;
  if (status.ok()) device = client_->FindDevice(device_args.device);
  // Owns the copy from here on, whatever else goes wrong.
  auto copy = std::make_unique<BufferImpl>(client_, args.dst_buffer, shape_, device.ok() ? *device : nullptr, memory);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(device.status());
  return copy;
}

void BufferImpl::Delete() {
  auto args = MakeArgs<PJRT_Buffer_Delete_Args>();
  args.buffer = c_;
  client_->api().ToStatus(client_->api()->PJRT_Buffer_Delete(&args)).IgnoreError();  // it is deleted already
}

bool BufferImpl::IsDeleted() const {
  auto args = MakeArgs<PJRT_Buffer_IsDeleted_Args>();
  args.buffer = c_;
  absl::Status status = client_->api().ToStatus(client_->api()->PJRT_Buffer_IsDeleted(&args));
  return !status.ok() || args.is_deleted;
}

}  // namespace openpathways::pjrt
