// Constants of worker.proto.
#ifndef OPENPATHWAYS_WORKER_PROTOCOL_H_
#define OPENPATHWAYS_WORKER_PROTOCOL_H_

namespace openpathways::worker {

inline constexpr int kProtocolVersion = 1;

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_PROTOCOL_H_
