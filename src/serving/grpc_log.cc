#include "serving/grpc_log.h"

#include "base/logging.h"
#include "grpc/support/log.h"

namespace openpathways::serving {

void RouteGrpcLog() {
  gpr_set_log_function(
      [](gpr_log_func_args* args) { spdlog::debug("gRPC {}:{}: {}", args->file, args->line, args->message); });
}

}  // namespace openpathways::serving
