#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "proxy/requests.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

using Arrays = std::vector<ifrt::ArrayRef>;

template <typename Repeated>
absl::Span<const uint64_t> Handles(const Repeated& handles) {
  return absl::MakeConstSpan(handles.data(), handles.size());
}

absl::Status CheckShardSemantics(bool given, xla::ifrt::proto::SingleDeviceShardSemantics semantics) {
  // All devices are addressable, so both kinds of semantics mean the same.
  if (!given || semantics == xla::ifrt::proto::SINGLE_DEVICE_SHARD_SEMANTICS_ADDRESSABLE_SHARDS ||
      semantics == xla::ifrt::proto::SINGLE_DEVICE_SHARD_SEMANTICS_ALL_SHARDS) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("Unknown single device shard semantics ", semantics));
}

// One for each array.
absl::StatusOr<std::vector<ifrt::ArraySpec>> SpecsFor(
    Call& call, const Arrays& arrays, const google::protobuf::RepeatedPtrField<xla::ifrt::ArraySpecProto>& protos) {
  if (protos.size() != static_cast<int>(arrays.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(protos.size(), " results are described for ", arrays.size(), " arrays"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, call.device_ids());
  std::vector<ifrt::ArraySpec> specs;
  for (const xla::ifrt::ArraySpecProto& proto : protos) {
    ASSIGN_OR_RETURN(specs.emplace_back(), FromProto(proto, *ids));
  }
  return specs;
}

}  // namespace

void Handle(CallRef call, const wire::MakeErrorArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  *response.mutable_make_error_arrays_response()->mutable_array_handles() = request.array_handles();
  AnswerWithArrays(std::move(call), Handles(request.array_handles()), std::move(response),
                   [&]() -> absl::StatusOr<Arrays> {
                     const absl::Status error = c.Blame(FromProto(request.error()));
                     if (error.ok()) return absl::InvalidArgumentError("Error arrays cannot be made from an OK status");
                     ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, c.device_ids());
                     Arrays arrays;
                     for (const xla::ifrt::ArraySpecProto& proto : request.array_specs()) {
                       ASSIGN_OR_RETURN(ifrt::ArraySpec spec, FromProto(proto, *ids));
                       arrays.push_back(std::make_shared<ifrt::Array>(std::move(spec), error));
                     }
                     return arrays;
                   });
}

void Handle(CallRef call, const wire::AssembleArrayFromSingleDeviceArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  response.mutable_assemble_array_from_single_device_arrays_response()->set_array_handle(request.result_handle());
  const uint64_t result = request.result_handle();
  AnswerWithArrays(
      std::move(call), {&result, 1}, std::move(response),
      [&]() -> absl::StatusOr<Arrays> {
        ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, c.device_ids());
        ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
        RETURN_IF_ERROR(
            CheckShardSemantics(request.has_single_device_shard_semantics(), request.single_device_shard_semantics()));
        ASSIGN_OR_RETURN(Arrays shards, c.FindArrays(Handles(request.single_device_array_handles())));
        xla::ifrt::DTypeProto dtype;
        if (request.has_dtype()) {
          dtype = request.dtype();
        } else if (!shards.empty()) {
          dtype = ToProto(shards[0]->dtype());
        }
        ASSIGN_OR_RETURN(ifrt::ArraySpec spec, MakeArraySpec(dtype, request.shape(), request.sharding(), *ids));
        if (shards.size() != spec.sharding->devices().size()) {
          return absl::InvalidArgumentError(absl::StrCat("An array over ", spec.sharding->devices().size(),
                                                         " devices cannot be assembled from ", shards.size(),
                                                         " arrays"));
        }
        ASSIGN_OR_RETURN(ifrt::ArrayRef array, c.backend().AssembleArray(std::move(spec), shards, semantics));
        return Arrays{std::move(array)};
      },
      &Call::source_context);
}

void Handle(CallRef call, const wire::DisassembleIntoSingleDeviceArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  *response.mutable_disassemble_into_single_device_arrays_response()->mutable_array_handles() =
      request.result_handles();
  AnswerWithArrays(
      std::move(call), Handles(request.result_handles()), std::move(response),
      [&]() -> absl::StatusOr<Arrays> {
        ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
        RETURN_IF_ERROR(
            CheckShardSemantics(request.has_single_device_shard_semantics(), request.single_device_shard_semantics()));
        ASSIGN_OR_RETURN(ifrt::ArrayRef array, c.FindArray(request.array_handle()));
        return c.backend().DisassembleArray(array, semantics);
      },
      &Call::source_context);
}

void Handle(CallRef call, const wire::CopyArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  *response.mutable_copy_arrays_response()->mutable_array_handles() = request.result_handles();
  AnswerWithArrays(
      std::move(call), Handles(request.result_handles()), std::move(response), [&]() -> absl::StatusOr<Arrays> {
        ASSIGN_OR_RETURN(std::shared_ptr<const ifrt::DeviceIds> ids, c.device_ids());
        ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
        if (request.array_handles_size() != request.result_handles_size()) {
          return absl::InvalidArgumentError(absl::StrCat(request.array_handles_size(), " arrays are to be copied to ",
                                                         request.result_handles_size(), " handles"));
        }
        ASSIGN_OR_RETURN(Arrays arrays, c.FindArrays(Handles(request.array_handles())));
        std::optional<ifrt::DeviceList> devices;
        if (!request.device_ids().empty()) {
          ASSIGN_OR_RETURN(devices,
                           ids->FindAll(absl::MakeConstSpan(request.device_ids().data(), request.device_ids_size())));
          for (const ifrt::ArrayRef& array : arrays) {
            if (array->sharding()->devices().size() == devices->size()) continue;
            return absl::InvalidArgumentError(absl::StrCat("An array of ", array->sharding()->devices().size(),
                                                           " shards cannot be copied to ", devices->size(),
                                                           " devices"));
          }
        }
        std::optional<std::string> memory_kind;
        if (request.has_memory_kind()) {
          ASSIGN_OR_RETURN(memory_kind, MemoryKindFromName(request.memory_kind()));
        }
        return c.backend().CopyArrays(arrays, std::move(devices), std::move(memory_kind), semantics);
      });
}

void Handle(CallRef call, const wire::FullyReplicatedShardRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  response.mutable_fully_replicated_shard_response()->set_array_handle(request.result_handle());
  const uint64_t result = request.result_handle();
  AnswerWithArrays(
      std::move(call), {&result, 1}, std::move(response),
      [&]() -> absl::StatusOr<Arrays> {
        ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
        ASSIGN_OR_RETURN(ifrt::ArrayRef array, c.FindArray(request.array_handle()));
        ASSIGN_OR_RETURN(ifrt::ArrayRef shard, c.backend().FullyReplicatedShard(array, semantics));
        return Arrays{std::move(shard)};
      },
      &Call::source_context);
}

void Handle(CallRef call, const wire::ReshardArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  *response.mutable_reshard_arrays_response()->mutable_array_handles() = request.result_handles();
  AnswerWithArrays(std::move(call), Handles(request.result_handles()), std::move(response),
                   [&]() -> absl::StatusOr<Arrays> {
                     ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
                     ASSIGN_OR_RETURN(Arrays arrays, c.FindArrays(Handles(request.array_handles())));
                     ASSIGN_OR_RETURN(std::vector<ifrt::ArraySpec> specs, SpecsFor(c, arrays, request.array_specs()));
                     return c.backend().ReshardArrays(arrays, std::move(specs), semantics);
                   });
}

void Handle(CallRef call, const wire::BitcastArraysRequest& request) {
  Call& c = *call;
  wire::IfrtResponse response;
  *response.mutable_bitcast_arrays_response()->mutable_array_handles() = request.result_handles();
  AnswerWithArrays(
      std::move(call), Handles(request.result_handles()), std::move(response),
      [&]() -> absl::StatusOr<Arrays> {
        ASSIGN_OR_RETURN(ifrt::CopySemantics semantics, FromProto(request.copy_semantics()));
        ASSIGN_OR_RETURN(Arrays arrays, c.FindArrays(Handles(request.array_handles())));
        ASSIGN_OR_RETURN(std::vector<ifrt::ArraySpec> specs, SpecsFor(c, arrays, request.array_specs()));
        return c.backend().BitcastArrays(arrays, std::move(specs), semantics);
      },
      &Call::source_context);
}

void Handle(CallRef call, const wire::DeleteArrayRequest& request) {
  Session& session = call->session();
  absl::Status deleted;
  for (uint64_t handle : request.array_handle()) {
    absl::StatusOr<ArrayEntryRef> entry = session.arrays().Find(handle);
    if (!entry.ok()) {
      deleted.Update(entry.status());
    } else if ((*entry)->array.ok()) {
      (*(*entry)->array)->Delete();
    }
  }
  const uint64_t handle = session.NewHandle();
  auto future = std::make_shared<const FutureEntry>(
      FutureEntry{Future<>(std::move(deleted)), call->context(), /*is_deletion=*/true});
  session.futures().Insert(handle, std::move(future)).IgnoreError();  // fails only once the session has ended
  wire::IfrtResponse response;
  response.mutable_delete_array_response()->set_deletion_future_handle(handle);
  call->Respond(std::move(response), Counting::kNotCounted);
}

void Handle(CallRef call, const wire::IsArrayDeletedRequest& request) {
  absl::StatusOr<ifrt::ArrayRef> array = call->FindArray(request.array_handle());
  if (!array.ok()) return call->Fail(array.status());
  wire::IfrtResponse response;
  response.mutable_is_array_deleted_response()->set_deleted((*array)->IsDeleted());
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::DestructArrayRequest& request) {
  std::vector<uint64_t> unknown;
  for (uint64_t handle : request.array_handle()) {
    if (!call->session().arrays().Take(handle).ok()) unknown.push_back(handle);
  }
  if (!unknown.empty()) {
    return call->Fail(absl::NotFoundError(absl::StrCat("Unknown array handle(s): ", absl::StrJoin(unknown, ", "))));
  }
  wire::IfrtResponse response;
  response.mutable_destruct_array_response();
  call->Respond(std::move(response), Counting::kNotCounted, Urgency::kSoon);
}

}  // namespace openpathways::proxy
