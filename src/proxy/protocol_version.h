// Which versions of the protocol this server speaks.
#ifndef OPENPATHWAYS_PROXY_PROTOCOL_VERSION_H_
#define OPENPATHWAYS_PROXY_PROTOCOL_VERSION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/protos/grpc_ifrt_service.pb.h"

namespace openpathways::proxy {

// Clients chose all their handles and expected CompileResponse.device_ids from version 16 on.
inline constexpr int kMinProtocolVersion = 16;
inline constexpr int kMaxProtocolVersion = 25;
// Of the serialized types. 6 only brings another form of RemapArrays, which is understood but not asked for.
inline constexpr int kMinSerdesVersion = 2;
inline constexpr int kMaxSerdesVersion = 5;

// The newest versions that both sides speak; INVALID_ARGUMENT if there are none.
absl::StatusOr<xla::ifrt::proxy::IfrtProxyVersion> NegotiateVersion(
    const xla::ifrt::proxy::GrpcGetVersionRequest& request);
// INVALID_ARGUMENT if a session of this version cannot be served.
absl::Status CheckVersion(const xla::ifrt::proxy::IfrtProxyVersion& version);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_PROTOCOL_VERSION_H_
