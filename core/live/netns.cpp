// Namespaces are entered by short-lived helper threads: setns() changes one thread only, and a
// thread that has ended cannot be left in the wrong namespace.
#include "live/netns.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <exception>
#include <thread>

namespace loomnet {
namespace {

void on_helper_thread(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread helper([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  helper.join();
  if (failure) std::rethrow_exception(failure);
}

Fd open_netns(const std::string& path) {
  return checked_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC), "open network namespace " + path);
}

void write_sysctl(const std::string& path, const std::string& value, const std::string& label) {
  const std::string file = "/proc/sys/" + path;
  const std::string tried = "set sysctl " + path + "=" + value + " in " + label;
  Fd fd = checked_fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC), tried);
  if (::write(fd.get(), value.data(), value.size()) < 0) throw LiveError(tried, errno);
}

void loopback_up(const std::string& label) {
  const std::string tried = "bring up lo in " + label;
  Fd fd = checked_fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), tried);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) < 0) throw LiveError(tried, errno);
  request.ifr_flags |= IFF_UP;
  if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) < 0) throw LiveError(tried, errno);
}

}  // namespace

Netns Netns::create(const std::string& label, bool ipv6) {
  Fd fd;
  on_helper_thread([&] {
    if (::unshare(CLONE_NEWNET) < 0) throw LiveError("create network namespace " + label, errno);
    fd = open_netns("/proc/thread-self/ns/net");
    if (!ipv6) {
      // Absent in a kernel without IPv6, where there is nothing to switch off.
      if (::access("/proc/sys/net/ipv6", F_OK) == 0) {
        write_sysctl("net/ipv6/conf/default/disable_ipv6", "1", label);
        write_sysctl("net/ipv6/conf/all/disable_ipv6", "1", label);
      }
    }
    loopback_up(label);
  });
  return Netns(std::move(fd), label);
}

Netns Netns::of_process(pid_t pid, const std::string& label) {
  return Netns(open_netns("/proc/" + std::to_string(pid) + "/ns/net"), label);
}

Netns Netns::current() { return Netns(open_netns("/proc/thread-self/ns/net"), "own namespace"); }

Netns Netns::from_fd(Fd fd, const std::string& label) { return Netns(std::move(fd), label); }

std::uint64_t Netns::inode() const {
  struct stat st{};
  if (::fstat(fd_.get(), &st) < 0) throw LiveError("stat network namespace " + label_, errno);
  return st.st_ino;
}

void Netns::run(const std::function<void()>& work) const {
  on_helper_thread([&] {
    if (::setns(fd_.get(), CLONE_NEWNET) < 0) {
      throw LiveError("enter network namespace " + label_, errno);
    }
    work();
  });
}

void Netns::sysctl(const std::string& path, const std::string& value) const {
  run([&] { write_sysctl(path, value, label_); });
}

}  // namespace loomnet
