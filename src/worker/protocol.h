// Constants of worker.proto.
#ifndef OPENPATHWAYS_WORKER_PROTOCOL_H_
#define OPENPATHWAYS_WORKER_PROTOCOL_H_

namespace openpathways::worker {

inline constexpr int kProtocolVersion = 2;

// Element type of arrays of strings; the others are xla.PrimitiveType.
inline constexpr int kStringType = 99;

}  // namespace openpathways::worker

#endif  // OPENPATHWAYS_WORKER_PROTOCOL_H_
