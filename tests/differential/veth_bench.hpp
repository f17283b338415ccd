// A switch under test in a namespace of its own, ports p0, p1, …; the veth peers e0, e1, … in
// another. Frames go in by AF_PACKET on a peer and are collected on all peers.
#pragma once

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "live/netlink.hpp"
#include "live/netns.hpp"
#include "switch_forward/test_frames.hpp"

namespace loomnet::test {

// Raw frames of one interface: sent out of it, or received by it (not its own).
class RawSocket {
 public:
  RawSocket(const Netns& netns, const std::string& interface, bool own_frames_too = false)
      : own_frames_too_(own_frames_too) {
    netns.run([&] {
      fd_ = checked_fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL)),
                       "open a packet socket");
      sockaddr_ll where{};
      where.sll_family = AF_PACKET;
      where.sll_protocol = htons(ETH_P_ALL);
      where.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
      if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where)) {
        throw LiveError("bind a packet socket to " + interface, errno);
      }
      const int size = 32 << 20;
      if (::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size)) {
        throw LiveError("enlarge a packet socket's buffer", errno);
      }
    });
  }
  void send(const std::vector<std::uint8_t>& frame) {
    for (;;) {
      if (::send(fd_.get(), frame.data(), frame.size(), 0) >= 0) return;
      if (errno != ENOBUFS && errno != EAGAIN) {
        throw LiveError("send a frame of " + std::to_string(frame.size()) + " bytes", errno);
      }
      pollfd ready{fd_.get(), POLLOUT, 0};
      ::poll(&ready, 1, 10);
    }
  }
  // False when nothing waits.
  bool receive(std::vector<std::uint8_t>& frame) {
    for (;;) {
      frame.resize(65536);
      sockaddr_ll from{};
      socklen_t size = sizeof from;
      const ssize_t n = ::recvfrom(fd_.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (n < 0) return false;
      if (from.sll_pkttype == PACKET_OUTGOING && !own_frames_too_) continue;
      frame.resize(static_cast<std::size_t>(n));
      return true;
    }
  }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  bool own_frames_too_;
};

// Runs `ip -6 -batch` inside the namespace. Throws with ip's own words.
inline void ip_batch(const Netns& netns, const std::string& commands) {
  netns.run([&] {
    const std::string shell = "ip -6 -batch - 2>&1 <<'END'\n" + commands + "\nEND\n";
    FILE* pipe = ::popen(shell.c_str(), "r");
    if (!pipe) throw LiveError("run ip -batch", errno);
    std::string output;
    char line[256];
    while (std::fgets(line, sizeof line, pipe)) output += line;
    if (::pclose(pipe) != 0) throw std::runtime_error("ip -batch: " + output);
  });
}

class VethBench {
 public:
  static constexpr std::uint32_t kMtu = 3400;  // native XDP without frags: at most 3,506

  VethBench(std::size_t ports, bool ipv6)
      : switch_ns(Netns::create("lnfw-switch", ipv6)), peers_ns(Netns::create("lnfw-peers")) {
    Rtnetlink link(peers_ns);
    for (std::size_t i = 0; i < ports; ++i) {
      VethPair pair;
      pair.a = {"p" + std::to_string(i), &switch_ns, port_mac(i)};
      pair.b = {"e" + std::to_string(i), &peers_ns, peer_mac(i)};
      pair.mtu = kMtu;
      link.create_veth(pair);
      port_names.push_back(pair.a.name);
    }
    link.commit();
    for (std::size_t i = 0; i < ports; ++i) peers.emplace_back(peers_ns, "e" + std::to_string(i));
  }

  static MacAddress port_mac(std::size_t i) { return {0x02, 0xaa, 0, 0, 0, static_cast<std::uint8_t>(i)}; }
  static MacAddress peer_mac(std::size_t i) { return {0x02, 0xbb, 0, 0, 0, static_cast<std::uint8_t>(i)}; }

  // Hands every frame that comes out to `take(port, frame)` until it says that is all, or until
  // nothing has come for `quiet`.
  void collect(std::chrono::milliseconds quiet,
               const std::function<bool(std::size_t, const std::vector<std::uint8_t>&)>& take) {
    std::vector<pollfd> polls;
    for (RawSocket& peer : peers) polls.push_back({peer.fd(), POLLIN, 0});
    std::vector<std::uint8_t> frame;
    while (::poll(polls.data(), polls.size(), static_cast<int>(quiet.count())) > 0) {
      for (std::size_t port = 0; port < peers.size(); ++port) {
        while (peers[port].receive(frame)) {
          if (take(port, frame)) return;
        }
      }
    }
  }

  Netns switch_ns, peers_ns;
  std::vector<std::string> port_names;
  std::vector<RawSocket> peers;
};

}  // namespace loomnet::test
