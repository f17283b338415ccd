// What every system call of the live part needs: an owned file descriptor, and an error that says
// what was tried on which object.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace loomnet {

// A system call failed. what(): the thing tried, the object, the kernel's reason.
class LiveError : public std::runtime_error {
 public:
  LiveError(const std::string& tried, int error)
      : std::runtime_error(tried + ": " + std::generic_category().message(error)), tried_(tried), error_(error) {}
  LiveError(const std::string& tried, int error, const std::string& detail)
      : std::runtime_error(tried + ": " + std::generic_category().message(error) + " (" + detail + ")"),
        tried_(tried),
        error_(error) {}
  int error() const { return error_; }  // errno
  const std::string& tried() const { return tried_; }

 private:
  std::string tried_;
  int error_;
};

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = std::exchange(o.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// The descriptor, or LiveError("open /dev/x: Permission denied").
inline Fd checked_fd(int fd, const std::string& tried) {
  if (fd < 0) throw LiveError(tried, errno);
  return Fd(fd);
}

}  // namespace loomnet
