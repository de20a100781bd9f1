// Programs that are no computations but requests to the server (xla::ifrt::PluginProgram), written in JSON.
#ifndef OPENPATHWAYS_PROXY_PLUGIN_PROGRAM_H_
#define OPENPATHWAYS_PROXY_PLUGIN_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ifrt/backend.h"

namespace openpathways::proxy {

// `serialized`: the program as clients send it. Requests that this server does not know are UNIMPLEMENTED with the
// words "Bad PluginProgram", for which clients look. `backend` outlives the executable.
absl::StatusOr<ifrt::LoadedExecutableRef> MakePluginExecutable(absl::string_view serialized, ifrt::Backend& backend,
                                                               const ifrt::DeviceIds& ids);

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_PLUGIN_PROGRAM_H_
