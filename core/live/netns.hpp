// Network namespaces held by file descriptors alone: an unnamed one ends with the last descriptor,
// so a killed run leaves none behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "live/system.hpp"

namespace loomnet {

class Netns {
 public:
  // A fresh unnamed namespace, loopback up, IPv6 off on interfaces to come unless asked for: the
  // kernel's own neighbour discovery would be foreign packets on every link.
  static Netns create(const std::string& label, bool ipv6 = false);
  static Netns of_process(pid_t pid, const std::string& label);  // a Mininet node's
  static Netns current();
  static Netns from_fd(Fd fd, const std::string& label);  // takes over a descriptor of nsfs

  Netns(Netns&&) = default;
  Netns& operator=(Netns&&) = default;

  int fd() const { return fd_.get(); }
  const std::string& label() const { return label_; }  // for messages
  // The namespace's identity (inode of nsfs); equal for two descriptors of one namespace.
  std::uint64_t inode() const;

  // Runs `work` on a thread that has entered the namespace; the caller's thread never leaves its
  // own. An exception of `work` comes out here.
  void run(const std::function<void()>& work) const;

  // Writes a sysctl of this namespace, for example ("net/ipv6/conf/all/forwarding", "1").
  void sysctl(const std::string& path, const std::string& value) const;

 private:
  Netns(Fd fd, std::string label) : fd_(std::move(fd)), label_(std::move(label)) {}
  Fd fd_;
  std::string label_;
};

}  // namespace loomnet
