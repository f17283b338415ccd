// A line of one kernel-placed XDP switch between two hosts of the engine, for tests of the live
// loop: host 0 -- port 0 [switch 2] port 1 -- host 1. Hosts run a transport that only records.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ebpf/metadata.h"
#include "engine/network.hpp"
#include "live/live_fabric.hpp"
#include "live/live_loop.hpp"
#include "switch/forward/forward_batch.hpp"

namespace loomnet::live_test {

class Recorder final : public Transport {
 public:
  struct Seen {
    std::vector<std::uint8_t> bytes;
    Picoseconds ideal, now;
    std::uint32_t flow, message;
  };
  std::string_view name() const override { return "recorder"; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest&, Picoseconds) override {}
  void on_packet(PlanePort, PacketPtr p, Picoseconds now) override {
    ++packets;
    if (seen.size() >= keep) return;
    Seen s{{p->header.begin(), p->header.begin() + p->header_length}, p->ideal, now, p->flow, p->message};
    if (p->payload.data) {
      s.bytes.insert(s.bytes.end(), p->payload.data, p->payload.data + p->payload.length);
    }
    seen.push_back(std::move(s));
  }
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_deadline(Picoseconds) override {}
  Pulled pull(PlanePort, QueueClass, Picoseconds) override { return Pulled::idle(); }
  Picoseconds next_deadline() const override { return kNever; }
  bool outstanding() const override { return false; }
  void counters(std::vector<TransportCounter>&) const override {}

  std::size_t keep = 1000;
  std::vector<Seen> seen;
  std::uint64_t packets = 0;
};

inline constexpr std::uint16_t kKnownUsid = 0xe801, kUnknownUsid = 0x7777;
inline constexpr std::size_t kHeader = 14 + 40 + 16;

// Ethernet + IPv6 to a uA of the switch (or not), `payload` bytes behind 16 header bytes.
inline PacketPtr usid_packet(PacketPool& pool, std::uint16_t usid, std::span<const std::uint8_t> payload,
                             std::uint8_t hop_limit = 64) {
  PacketPtr p = pool.allocate();
  p->header_length = kHeader;
  p->header.fill(0);
  std::uint8_t* h = p->header.data();
  h[0] = 0x06, h[12] = 0x86, h[13] = 0xdd;
  std::uint8_t* ip = h + 14;
  const std::size_t length = 16 + payload.size();
  ip[0] = 0x60, ip[6] = 17, ip[7] = hop_limit;
  ip[4] = static_cast<std::uint8_t>(length >> 8), ip[5] = static_cast<std::uint8_t>(length);
  ip[8] = 0xfd, ip[23] = 1, ip[24] = 0xfc;
  ip[28] = static_cast<std::uint8_t>(usid >> 8), ip[29] = static_cast<std::uint8_t>(usid);
  ip[30] = 0x40, ip[31] = 0x01;
  p->payload = {payload.data(), static_cast<std::uint32_t>(payload.size()), 0, PayloadKind::region};
  p->wire_length = static_cast<std::uint32_t>(kHeader + payload.size());
  return p;
}

struct LineBed {
  Netns switch_netns = Netns::create("lnlv switch");
  Netns left = Netns::create("lnlv left"), right = Netns::create("lnlv right");
  Network network{1};
  NodeId a, b, s;
  Recorder* at_b = nullptr;
  std::unique_ptr<LiveFabric> fabric;
  std::unique_ptr<LiveLoop> loop;

  explicit LineBed(LiveLoopConfig config = {.realtime = false, .lateness_bound = seconds(10)},
                   LinkConfig link = {.rate = gigabits(1), .delay = microseconds(200)}) {
    a = network.add_host(1), b = network.add_host(1), s = network.add_switch(2, nullptr);
    network.connect({a, 0}, {s, 0}, link, link);
    network.connect({b, 0}, {s, 1}, link, link);
    for (const NodeId host : {a, b}) {
      auto recorder = std::make_unique<Recorder>();
      if (host == b) at_b = recorder.get();
      network.nic(host).set_transport(std::move(recorder));
    }
    ForwardBatch tables;
    tables.generation = 1;
    tables.own_ua.push_back({{usid_block(0), kKnownUsid}, 1});
    const std::vector<LivePort> ports = {
        {.node = s, .port = 0, .netns = &switch_netns, .interface = "lnlv-p0"},
        {.node = s, .port = 1, .netns = &switch_netns, .interface = "lnlv-p1"},
        {.node = a, .kind = PortKind::host, .netns = &left, .interface = "lnlv-left"},
        {.node = b, .kind = PortKind::host, .netns = &right, .interface = "lnlv-right"}};
    fabric = std::make_unique<LiveFabric>(
        ports, std::vector<LiveSwitch>{{.node = s, .netns = &switch_netns, .tables = tables.pack()}},
        LiveFabricConfig{.frames_per_umem = 2048});
    loop = std::make_unique<LiveLoop>(network, *fabric, config);
  }
  ~LineBed() {
    loop.reset();
    network.clear();
    fabric.reset();
  }
  // From host a, by the loop's thread, `count` packets now.
  void send(int count, std::uint16_t usid, std::span<const std::uint8_t> payload, std::uint8_t hop_limit = 64) {
    loop->call([&, count] {
      for (int i = 0; i < count; ++i) {
        network.egress(a, 0)->offer(usid_packet(network.pool(), usid, payload, hop_limit), network.now());
      }
    });
  }
  // Until host b has seen `count` packets, at most two seconds.
  bool wait_for(std::uint64_t count) {
    for (int i = 0; i < 2000; ++i) {
      if (loop->call([&] { return at_b->packets; }) >= count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};

}  // namespace loomnet::live_test
