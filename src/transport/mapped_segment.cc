#include "transport/mapped_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace openpathways::transport {

absl::StatusOr<std::shared_ptr<MappedSegment>> MappedSegment::Map(UniqueFd fd, uint64_t size) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != size) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's segment is no memory file of ", size, " bytes"));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("the peer's segment is not sealed against shrinking");
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map a peer's segment of ", size, " bytes: ", std::strerror(errno)));
  }
  return std::shared_ptr<MappedSegment>(new MappedSegment(static_cast<std::byte*>(data), size));
}

MappedSegment::~MappedSegment() { munmap(data_, size_); }

}  // namespace openpathways::transport
