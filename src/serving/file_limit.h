// How many files and sockets a server may have open.
#ifndef OPENPATHWAYS_SERVING_FILE_LIMIT_H_
#define OPENPATHWAYS_SERVING_FILE_LIMIT_H_

namespace openpathways::serving {

// Raises this process's limit as far as the system lets it. The usual one, 1024, is meant for programs that use
// select(); a server of a large cluster has a socket or more for each worker. Processes that it starts inherit the
// limit.
void RaiseFileLimit();

}  // namespace openpathways::serving

#endif  // OPENPATHWAYS_SERVING_FILE_LIMIT_H_
