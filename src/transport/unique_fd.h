// A file descriptor with an owner: closed when the UniqueFd goes. Not thread-safe.
#ifndef OPENPATHWAYS_TRANSPORT_UNIQUE_FD_H_
#define OPENPATHWAYS_TRANSPORT_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace openpathways::transport {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_UNIQUE_FD_H_
