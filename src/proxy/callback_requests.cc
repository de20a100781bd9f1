#include <utility>

#include "proxy/requests.h"

namespace openpathways::proxy {

// No executable has callbacks (Compile refuses them), so there is never any work to wait for. An error would make the
// client ask again at once, for ever; an empty answer ends its asking.
void Handle(CallRef call, const wire::LoadedHostCallbackPollRequest& request) {
  wire::IfrtResponse response;
  response.mutable_loaded_host_callback_poll_response();
  call->Respond(std::move(response));
}

void Handle(CallRef call, const wire::LoadedHostCallbackReturnRequest& request) {
  if (request.result_case() == wire::LoadedHostCallbackReturnRequest::kResultHostBufferHandle) {
    call->session().host_buffers()->Discard(request.result_host_buffer_handle());
  }
  call->Fail(absl::UnimplementedError("Host callbacks are not supported by this server yet"));
}

}  // namespace openpathways::proxy
