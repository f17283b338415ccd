// Engine against XDP on what Linux itself sends: TCP, UDP, ICMPv6 and seg6-encapsulated traffic
// between two namespaces, written to a pcap at test time and replayed from it.
#include <gtest/gtest.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>

#include <fstream>
#include <map>

#include "differential/program_pair.hpp"
#include "differential/veth_bench.hpp"
#include "live/offloads.hpp"

namespace loomnet::test {
namespace {

using namespace std::chrono_literals;
using Frames = std::vector<std::vector<std::uint8_t>>;

// --- pcap: the format of libpcap, microseconds, host byte order, Ethernet ---

struct PcapHeader {
  std::uint32_t magic = 0xa1b2c3d4;
  std::uint16_t major = 2, minor = 4;
  std::uint32_t zone = 0, figures = 0, longest = 65535, link = 1;
};
struct PcapRecord {
  std::uint32_t seconds = 0, microseconds = 0, captured = 0, length = 0;
};

void write_pcap(const std::string& path, const Frames& frames) {
  std::ofstream out(path, std::ios::binary);
  const PcapHeader header;
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  for (const auto& frame : frames) {
    const auto size = static_cast<std::uint32_t>(frame.size());
    const PcapRecord record{0, 0, size, size};
    out.write(reinterpret_cast<const char*>(&record), sizeof record);
    out.write(reinterpret_cast<const char*>(frame.data()), static_cast<std::streamsize>(size));
  }
  if (!out.flush()) throw std::runtime_error("write " + path);
}

Frames read_pcap(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  PcapHeader header;
  in.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!in || header.magic != 0xa1b2c3d4 || header.link != 1) throw std::runtime_error("no pcap: " + path);
  Frames frames;
  PcapRecord record;
  while (in.read(reinterpret_cast<char*>(&record), sizeof record)) {
    if (record.captured > header.longest) throw std::runtime_error("bad record in " + path);
    std::vector<std::uint8_t> frame(record.captured);
    if (!in.read(reinterpret_cast<char*>(frame.data()), record.captured)) {
      throw std::runtime_error("cut record in " + path);
    }
    frames.push_back(std::move(frame));
  }
  return frames;
}

// --- traffic -------------------------------------------------------------------------------------

sockaddr_in6 at(const char* text, std::uint16_t port) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  out.sin6_port = htons(port);
  const Ipv6Address a = address(text);
  std::copy(a.begin(), a.end(), out.sin6_addr.s6_addr);
  return out;
}

Fd open_socket(const Netns& netns, int type, int protocol) {
  Fd fd;
  netns.run([&] { fd = checked_fd(::socket(AF_INET6, type | SOCK_CLOEXEC, protocol), "open a socket"); });
  const timeval timeout{5, 0};  // a lost packet must fail the test, not hang it
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  return fd;
}

template <typename Call>
void check(const char* what, Call result) {
  if (result < 0) throw LiveError(what, errno);
}

void read_all(const Fd& fd, std::size_t size) {
  std::vector<std::uint8_t> buffer(size);
  for (std::size_t got = 0; got < size;) {
    const ssize_t n = ::recv(fd.get(), buffer.data() + got, size - got, 0);
    if (n <= 0) throw LiveError("receive over TCP", errno);
    got += static_cast<std::size_t>(n);
  }
}

void tcp_traffic(const Netns& a, const Netns& b) {
  const Fd listener = open_socket(b, SOCK_STREAM, 0);
  const sockaddr_in6 here = at("fd00::2", 7000);
  check("bind", ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here));
  check("listen", ::listen(listener.get(), 64));
  const std::vector<std::uint8_t> data(5000, 0x55);
  for (int connection = 0; connection < 40; ++connection) {
    const Fd client = open_socket(a, SOCK_STREAM, 0);
    check("connect", ::connect(client.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here));
    const Fd server = checked_fd(::accept(listener.get(), nullptr, nullptr), "accept");
    for (int i = 0; i < 10; ++i) {
      check("send", ::send(client.get(), data.data(), data.size(), 0));
      read_all(server, data.size());
      check("send", ::send(server.get(), data.data(), 700, 0));
      read_all(client, 700);
    }
  }
}

void udp_traffic(const Netns& a, const char* destination, std::uint16_t port, int datagrams) {
  for (int i = 0; i < datagrams; ++i) {
    const Fd client = open_socket(a, SOCK_DGRAM, 0);
    const sockaddr_in6 there = at(destination, port);
    const std::vector<std::uint8_t> data(static_cast<std::size_t>(1 + i * 7 % 1300), 0x77);
    check("sendto",
          ::sendto(client.get(), data.data(), data.size(), 0, reinterpret_cast<const sockaddr*>(&there), sizeof there));
  }
}

void echo_traffic(const Netns& a, int requests) {
  const Fd raw = open_socket(a, SOCK_RAW, IPPROTO_ICMPV6);
  const sockaddr_in6 there = at("fd00::2", 0);
  for (int i = 0; i < requests; ++i) {
    std::vector<std::uint8_t> request(8 + static_cast<std::size_t>(i), 0);
    request[0] = ICMP6_ECHO_REQUEST;
    check("ping", ::sendto(raw.get(), request.data(), request.size(), 0, reinterpret_cast<const sockaddr*>(&there),
                           sizeof there));
  }
}

// --- the test ---

TEST(ForwardCaptureTest, WhatLinuxSendsIsDecidedAlike) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  const Netns a = Netns::create("lnfw-a", true), b = Netns::create("lnfw-b", true);
  Rtnetlink link(a);
  VethPair pair;
  pair.a = {"a0", &a, {0x02, 0, 0, 0, 0, 0x0a}};
  pair.b = {"b0", &b, {0x02, 0, 0, 0, 0, 0x0b}};
  link.create_veth(pair);
  link.commit();
  disable_offloads(a, {"a0"});
  disable_offloads(b, {"b0"});
  ip_batch(a, R"(addr add fd00::1/128 dev a0 nodad
route add fd00::2/128 dev a0
neigh add fd00::2 lladdr 02:00:00:00:00:0b dev a0 nud permanent
neigh add fe80::b lladdr 02:00:00:00:00:0b dev a0 nud permanent
route add fc00:3::/32 via fe80::b dev a0)");
  ip_batch(b, R"(addr add fd00::2/128 dev b0 nodad
route add fd00::1/128 dev b0
neigh add fd00::1 lladdr 02:00:00:00:00:0a dev b0 nud permanent)");
  bool seg6 = true;
  try {
    ip_batch(a,
             R"(route add fd00::52/128 encap seg6 mode encap.red segs fc00:3:2005:1011:2009:4002:: dev a0
route add fd00::53/128 encap seg6 mode encap segs fc00:3:2005:1012:2009:4002:: dev a0)");
  } catch (const std::exception& error) {
    seg6 = false;
    std::printf("  without seg6 traffic: %s\n", error.what());
  }

  RawSocket tap(b, "b0", /*own_frames_too=*/true);
  tcp_traffic(a, b);
  udp_traffic(a, "fd00::2", 9, 300);  // nobody listens: ICMPv6 errors come back
  echo_traffic(a, 200);
  if (seg6) {
    udp_traffic(a, "fd00::52", 9, 200);
    udp_traffic(a, "fd00::53", 9, 50);
  }
  Frames captured;
  pollfd ready{tap.fd(), POLLIN, 0};
  std::vector<std::uint8_t> frame;
  while (::poll(&ready, 1, 200) > 0) {
    while (tap.receive(frame)) captured.push_back(frame);
  }
  const std::string path = ::testing::TempDir() + "lnfw_capture_" + std::to_string(::getpid()) + ".pcap";
  write_pcap(path, captured);
  const Frames replayed = read_pcap(path);
  ::unlink(path.c_str());
  ASSERT_EQ(replayed, captured);

  ForwardPair both(8, {99, FORWARD_DEFAULT_OPTIONS});
  ForwardBatch tables = vector_tables();
  tables.groups = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  tables.hosts = {{address("fd00::1"), 0}, {address("fd00::2"), 1}};
  both.set_tables(tables);
  for (SwitchPort port = 0; port < 8; ++port) both.xdp.set_port(port, 1);
  std::map<int, int> forwarded, dropped;  // by next header
  std::map<int, int> tcp_ports;
  for (const auto& bytes : replayed) {
    const auto difference = both.difference(bytes, 7);
    ASSERT_FALSE(difference) << *difference;
    ASSERT_GE(bytes.size(), 54u);
    const bool left = both.last.action == Verdict::Action::forward;
    ++(left ? forwarded : dropped)[bytes[20]];
    if (left && bytes[20] == IPPROTO_TCP) ++tcp_ports[both.last.value];
  }
  const auto difference = both.counter_difference();
  EXPECT_FALSE(difference) << *difference;
  for (const auto& [next, n] : forwarded) std::printf("  next header %3d: %d forwarded\n", next, n);
  for (const auto& [next, n] : dropped) std::printf("  next header %3d: %d dropped\n", next, n);
  EXPECT_GE(forwarded[IPPROTO_TCP], 1000);
  EXPECT_EQ(dropped[IPPROTO_TCP], 0);
  EXPECT_EQ(tcp_ports.size(), 8u);  // 40 connections spread over both groups
  EXPECT_GE(forwarded[IPPROTO_UDP], 300);
  EXPECT_GE(forwarded[IPPROTO_ICMPV6], 400);
  if (seg6) {
    EXPECT_EQ(forwarded[IPPROTO_IPV6], 200);
    EXPECT_EQ(dropped[IPPROTO_ROUTING], 50);
  }
}

}  // namespace
}  // namespace loomnet::test
