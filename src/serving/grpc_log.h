// gRPC's own log.
#ifndef OPENPATHWAYS_SERVING_GRPC_LOG_H_
#define OPENPATHWAYS_SERVING_GRPC_LOG_H_

namespace openpathways::serving {

// Sends what gRPC logs to our log, at level debug: it is mostly about connections that say something else than HTTP/2,
// such as load balancers' checks. What concerns a call comes as that call's status.
void RouteGrpcLog();

}  // namespace openpathways::serving

#endif  // OPENPATHWAYS_SERVING_GRPC_LOG_H_
