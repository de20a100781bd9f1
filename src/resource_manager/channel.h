// Connections to the resource manager, from workers and proxies.
#ifndef OPENPATHWAYS_RESOURCE_MANAGER_CHANNEL_H_
#define OPENPATHWAYS_RESOURCE_MANAGER_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace openpathways::resource_manager {

// Plain HTTP/2 to "host:port". Connects again for ever, within a few seconds, also when the resource manager has come
// back at another address under the same name.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

}  // namespace openpathways::resource_manager

#endif  // OPENPATHWAYS_RESOURCE_MANAGER_CHANNEL_H_
