// The far side's kernel, as a test sees it: every frame of an interface in another namespace.
#pragma once

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "live/netns.hpp"

namespace loomnet::live_test {

class RawSocket {
 public:
  RawSocket(const Netns& netns, const std::string& interface) {
    netns.run([&] {
      fd_ = checked_fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)), "raw socket");
      sockaddr_ll address{};
      address.sll_family = AF_PACKET;
      address.sll_protocol = htons(ETH_P_ALL);
      address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
      if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
        throw LiveError("bind raw socket to " + interface, errno);
      }
    });
  }
  bool send(const std::vector<std::uint8_t>& bytes) {
    return ::send(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  }
  std::vector<std::uint8_t> receive() {
    pollfd p{fd_.get(), POLLIN, 0};
    std::vector<std::uint8_t> bytes(4096);
    if (::poll(&p, 1, 2000) != 1) return {};
    const ssize_t size = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return bytes;
  }

 private:
  Fd fd_;
};

}  // namespace loomnet::live_test
