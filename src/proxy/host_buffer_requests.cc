#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proxy/requests.h"
#include "proxy/strided_host_data.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

// Makes sure that a host buffer which the client sends for a request does not stay when the request fails.
class BufferClaim {
 public:
  BufferClaim(HostBufferTable& table, uint64_t handle) : table_(&table), handle_(handle) {}
  ~BufferClaim() {
    if (table_ != nullptr) table_->Discard(handle_);
  }
  BufferClaim(BufferClaim&& other) noexcept : table_(std::exchange(other.table_, nullptr)), handle_(other.handle_) {}
  BufferClaim& operator=(BufferClaim&&) = delete;

  absl::StatusOr<ifrt::HostBufferRef> Take(int64_t size) {
    absl::StatusOr<ifrt::HostBufferRef> buffer = std::exchange(table_, nullptr)->Claim(handle_, size);
    return buffer;
  }

 private:
  HostBufferTable* table_;
  const uint64_t handle_;
};

template <typename Request>
const xla::ifrt::proto::ByteStrides* StridesOf(const Request& request) {
  return request.has_byte_strides() ? &request.byte_strides() : nullptr;
}

// Tells whoever still sends for `shards` that no array will take the bytes.
void Abandon(const std::vector<ifrt::HostShard>& shards, const absl::Status& error) {
  for (const ifrt::HostShard& shard : shards) shard.buffer->Finish(error);
}

absl::StatusOr<ifrt::ArrayRef> MakeArray(Call& call, ifrt::ArraySpec spec, std::vector<ifrt::HostShard> shards) {
  std::vector<ifrt::HostShard> given = shards;
  absl::StatusOr<ifrt::ArrayRef> array = call.backend().MakeArrayFromHostShards(std::move(spec), std::move(shards));
  if (!array.ok()) Abandon(given, array.status());
  return array;
}

absl::StatusOr<ifrt::ArrayRef> MakeFromOneBuffer(Call& call, const wire::MakeArrayFromHostBufferRequest& request,
                                                 BufferClaim claim) {
  ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call.device_ids());
  ASSIGN_OR_RETURN(ifrt::ArraySpec spec, MakeArraySpec(request.dtype(), request.shape(), request.sharding(), *ids));
  ASSIGN_OR_RETURN(spec.minor_to_major, FromProto(request.layout(), spec.shape));
  ifrt::HostShard shard;
  shard.shape = spec.shape;
  ASSIGN_OR_RETURN(shard.byte_strides, StridesFromProto(StridesOf(request), spec.dtype, spec.shape));
  ASSIGN_OR_RETURN(int64_t size, HostBufferSize(spec.dtype, spec.shape, shard.byte_strides));
  const int num_shards = static_cast<int>(spec.sharding->devices().size());
  for (int k = 0; k < num_shards; ++k) {
    ASSIGN_OR_RETURN(ifrt::Shape shard_shape, spec.sharding->ShardShape(spec.shape, k));
    if (shard_shape != spec.shape) {
      return absl::InvalidArgumentError(absl::StrCat("One host buffer cannot fill an array of shape ",
                                                     ifrt::ToString(spec.shape), " with shards of shape ",
                                                     ifrt::ToString(shard_shape)));
    }
    shard.shard_indices.push_back(k);
  }
  ASSIGN_OR_RETURN(shard.buffer, claim.Take(size));
  std::vector<ifrt::HostShard> shards;
  shards.push_back(std::move(shard));
  return MakeArray(call, std::move(spec), std::move(shards));
}

using ShardsSpec = wire::MakeArraysFromHostBufferShardsRequest::MakeArraysFromHostBufferShardsSpec;
using HostBufferProto = wire::MakeArraysFromHostBufferShardsRequest::HostBuffer;

absl::StatusOr<ifrt::HostShard> MakeHostShard(const HostBufferProto& proto, absl::Span<const int64_t> indices,
                                              const ifrt::ArraySpec& spec, std::vector<bool>& filled) {
  ifrt::HostShard shard;
  ASSIGN_OR_RETURN(ifrt::DType dtype, FromProto(proto.dtype()));
  ASSIGN_OR_RETURN(shard.shape, FromProto(proto.shape()));
  if (dtype != spec.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("A host buffer of ", ifrt::ToString(dtype),
                                                   " was given for an array of ", ifrt::ToString(spec.dtype)));
  }
  ASSIGN_OR_RETURN(shard.byte_strides, StridesFromProto(StridesOf(proto), dtype, shard.shape));
  for (int64_t index : indices) {
    if (index < 0 || index >= static_cast<int64_t>(filled.size()) || filled[index]) {
      return absl::InvalidArgumentError(absl::StrCat("Shard ", index, " of an array of ", filled.size(),
                                                     " shards was given twice or does not exist"));
    }
    filled[index] = true;
    ASSIGN_OR_RETURN(ifrt::Shape shard_shape, spec.sharding->ShardShape(spec.shape, static_cast<int>(index)));
    if (shard_shape != shard.shape) {
      return absl::InvalidArgumentError(absl::StrCat("Shard ", index, " has shape ", ifrt::ToString(shard_shape),
                                                     ", but its host buffer has shape ", ifrt::ToString(shard.shape)));
    }
    shard.shard_indices.push_back(index);
  }
  return shard;
}

absl::StatusOr<ifrt::ArrayRef> MakeFromShards(Call& call, const ShardsSpec& proto, std::vector<BufferClaim> claims) {
  ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call.device_ids());
  ASSIGN_OR_RETURN(ifrt::ArraySpec spec, FromProto(proto.array_spec(), *ids));
  if (proto.host_buffers_size() != proto.addressable_shard_indices_size()) {
    return absl::InvalidArgumentError(absl::StrCat(proto.host_buffers_size(), " host buffers were given for ",
                                                   proto.addressable_shard_indices_size(), " sets of shards"));
  }
  std::vector<bool> filled(spec.sharding->devices().size(), false);
  std::vector<ifrt::HostShard> shards;
  std::vector<int64_t> sizes;
  for (int j = 0; j < proto.host_buffers_size(); ++j) {
    const auto& indices = proto.addressable_shard_indices(j).indices();
    ASSIGN_OR_RETURN(
        shards.emplace_back(),
        MakeHostShard(proto.host_buffers(j), absl::MakeConstSpan(indices.data(), indices.size()), spec, filled));
    ASSIGN_OR_RETURN(sizes.emplace_back(), HostBufferSize(spec.dtype, shards[j].shape, shards[j].byte_strides));
  }
  for (size_t k = 0; k < filled.size(); ++k) {
    if (!filled[k]) {
      return absl::InvalidArgumentError(absl::StrCat("No host buffer was given for shard ", k, " of ", filled.size()));
    }
  }
  for (size_t j = 0; j < shards.size(); ++j) {
    absl::StatusOr<ifrt::HostBufferRef> buffer = claims[j].Take(sizes[j]);
    if (!buffer.ok()) {
      shards.resize(j);
      Abandon(shards, buffer.status());
      return buffer.status();
    }
    shards[j].buffer = *std::move(buffer);
  }
  return MakeArray(call, std::move(spec), std::move(shards));
}

}  // namespace

void Handle(CallRef call, const wire::MakeArrayFromHostBufferRequest& request) {
  Call& c = *call;
  BufferClaim claim(*c.session().host_buffers(), request.host_buffer_handle());
  wire::IfrtResponse response;
  auto& body = *response.mutable_make_array_from_host_buffer_response();
  if (request.array_handle() == 0) {  // the server chooses
    absl::StatusOr<ifrt::ArrayRef> array = MakeFromOneBuffer(c, request, std::move(claim));
    if (!array.ok()) return call->Fail(array.status());
    body.set_array_handle(c.session().NewHandle());
    c.BindArrays({body.array_handle()}, {*array}, c.context());
    return call->Respond(std::move(response));
  }
  const uint64_t handle = request.array_handle();
  body.set_array_handle(handle);
  AnswerWithArrays(std::move(call), absl::MakeConstSpan(&handle, 1), std::move(response),
                   [&]() -> absl::StatusOr<std::vector<ifrt::ArrayRef>> {
                     ASSIGN_OR_RETURN(ifrt::ArrayRef array, MakeFromOneBuffer(c, request, std::move(claim)));
                     return std::vector<ifrt::ArrayRef>{std::move(array)};
                   });
}

void Handle(CallRef call, const wire::MakeArraysFromHostBufferShardsRequest& request) {
  Call& c = *call;
  // Claimed all together, so that whatever fails, no buffer stays.
  std::vector<std::vector<BufferClaim>> claims(request.specs_size());
  for (int i = 0; i < request.specs_size(); ++i) {
    for (const HostBufferProto& buffer : request.specs(i).host_buffers()) {
      claims[i].emplace_back(*c.session().host_buffers(), buffer.host_buffer_handle());
    }
  }
  wire::IfrtResponse response;
  *response.mutable_make_arrays_from_host_buffer_shards_response()->mutable_array_handles() = request.array_handles();
  const auto& handles = request.array_handles();
  AnswerWithArrays(
      std::move(call), absl::MakeConstSpan(handles.data(), handles.size()), std::move(response),
      [&]() -> absl::StatusOr<std::vector<ifrt::ArrayRef>> {
        if (request.specs_size() != request.array_handles_size()) {
          return absl::InvalidArgumentError(absl::StrCat(request.specs_size(), " arrays were described and ",
                                                         request.array_handles_size(), " named"));
        }
        std::vector<ifrt::ArrayRef> arrays;
        for (int i = 0; i < request.specs_size(); ++i) {
          ASSIGN_OR_RETURN(arrays.emplace_back(), MakeFromShards(c, request.specs(i), std::move(claims[i])));
        }
        return arrays;
      });
}

void Handle(CallRef call, const wire::CopyToHostBufferRequest& request) {
  absl::StatusOr<ArrayEntryRef> entry = call->FindEntry(request.array_handle());
  if (!entry.ok()) return call->Fail(entry.status());
  ifrt::ArrayRef array = *(*entry)->array;
  call->set_error_context((*entry)->context);
  auto check = [&]() -> absl::StatusOr<ByteStrides> {
    RETURN_IF_ERROR(array->Usable());
    if (request.host_buffer_handle() == 0) return absl::InvalidArgumentError("The request names no host buffer");
    ASSIGN_OR_RETURN(ByteStrides strides, StridesFromProto(StridesOf(request), array->dtype(), array->shape()));
    RETURN_IF_ERROR(HostBufferSize(array->dtype(), array->shape(), strides).status());
    return strides;
  };
  absl::StatusOr<ByteStrides> strides = check();
  if (!strides.ok()) return call->Fail(strides.status());
  Future<ifrt::HostDataRef> data = array->ReadHost();
  if (strides->has_value()) data = ToStrided(std::move(data), array->dtype(), array->shape(), **strides);
  data.OnReady([call = std::move(call),
                handle = request.host_buffer_handle()](const absl::StatusOr<ifrt::HostDataRef>& data) mutable {
    if (!data.ok()) return call->Fail(data.status());
    const absl::Status published = call->session().host_buffers()->Publish(handle, *data);
    if (!published.ok()) return call->Fail(published);
    wire::IfrtResponse response;
    response.mutable_copy_to_host_buffer_response();
    call->Respond(std::move(response));
  });
}

}  // namespace openpathways::proxy
