// HostBufferReadFromDisk: host buffers that the client wrote to a directory which it shares with this server.
#ifndef OPENPATHWAYS_PROXY_DISK_STORE_H_
#define OPENPATHWAYS_PROXY_DISK_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proxy/host_buffer_table.h"

namespace openpathways::proxy {

// Reads with a thread of its own, a few pieces ahead of the devices. Files are read, not mapped: another client that
// shares the directory may truncate one at any time, which must not bring this process down. Thread-safe.
class DiskStore {
 public:
  // `directory` empty: every Read is FAILED_PRECONDITION.
  explicit DiskStore(std::string directory);
  ~DiskStore();  // buffers that are still read fail

  // The directory that clients and servers agree on by environment variables.
  static std::string DirectoryFromEnvironment();

  // Opens the file of host buffer `handle`, removes its name, and stores its `size` bytes into `table`. Returns as soon
  // as the file is open; errors of reading go to whoever wants the buffer.
  absl::Status Read(HostBufferTable& table, uint64_t handle, int64_t size);

 private:
  class File;
  class TaskQueue;  // of the thread; files refer to it, and may outlive this object

  const std::string directory_;
  const std::shared_ptr<TaskQueue> queue_;
  std::thread thread_;
};

}  // namespace openpathways::proxy

#endif  // OPENPATHWAYS_PROXY_DISK_STORE_H_
