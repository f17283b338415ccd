// A ring of hosts whose packets are noted with the step headers that they carry.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/nic_bed.hpp"
#include "engine/quiet_tap.hpp"
#include "packet/step_stamp.hpp"
#include "trace/packet_label.hpp"
#include "traffic/collective_traffic.hpp"
#include "transport/factory.hpp"

namespace loomnet::testing {

// Notes the packets that hosts send, in the order of time.
class StepPackets final : public QuietTap {
 public:
  struct Seen {
    unsigned host = 0;
    Picoseconds at{};
    std::uint16_t source_port = 0, port = 0;
    std::optional<step_header> header;
    Attributes attributes;
    std::uint32_t flow = 0, wire = 0;
    bool data = false;  // its BTH is of a write
    PacketLabel label{};
  };
  explicit StepPackets(unsigned hosts) : hosts_(hosts) { (void)transports(); }  // which register labelers
  std::vector<Seen> seen;

  void sent(std::uint32_t half, const Packet& p, Picoseconds at, Picoseconds) override {
    if (half % 2 != 0 || half / 2 >= hosts_) return;  // the Clos makes the hosts' links first
    const auto h = p.header_bytes();
    const std::size_t udp = h[20] == kNextHeaderIpv6 ? 94 : 54;
    if (h.size() < udp + 8 || h[udp - 40 + 6] != kNextHeaderUdp) return;
    Seen s{half / 2, at, {}, {}, {}, p.attributes, p.flow, p.wire_length, false, label_of(p)};
    s.source_port = static_cast<std::uint16_t>(h[udp] << 8 | h[udp + 1]);
    s.port = static_cast<std::uint16_t>(h[udp + 2] << 8 | h[udp + 3]);
    std::size_t bth = udp + 8;
    step_header header{};
    if (s.port == kUdpPortStep && step_header_load(h.data() + bth, &header) == 1) {
      s.header = header;
      bth += kStepHeaderBytes;
    }
    s.data = (h[bth] & 0x3f) >= 0x06 && (h[bth] & 0x3f) <= 0x0b;
    seen.push_back(s);
  }

 private:
  unsigned hosts_;
};

struct RingBed {
  using Equip = std::function<std::unique_ptr<Transport>(Nic&)>;

  static Equip roce(roce::RoceOptions o) {
    o.payload_mtu = 4096;
    if (o.timeout_exponent == 20) o.timeout_exponent = 7;
    return [o](Nic& nic) { return std::make_unique<roce::RoceTransport>(nic.sink(), o); };
  }
  static Equip mrc(StepIdentity identity) {
    return [identity](Nic& nic) {
      auto o = mrc::MrcOptions::sim(microseconds(12), gigabits(100));
      o.identity = identity;
      return std::make_unique<mrc::MrcTransport>(o, nic.sink(), nic.ports());
    };
  }

  RingBed(unsigned n, const Equip& equip, CollectiveTrafficConfig config, unsigned pairs_by_step = 0,
          const std::function<void(Network&)>& prepare = {})
      : hosts(n), packets(n), network(1), clos(network, {.planes = 1, .hosts_per_leaf = (n + 1) / 2}) {
    for (unsigned h = 0; h < n; ++h) {
      network.nic(h).set_transport(equip(network.nic(h)));
      config.hosts.push_back(h);
    }
    network.set_tap(&packets, true);
    if (prepare) prepare(network);
    ring = std::make_unique<CollectiveTraffic>(network, config);
    for (std::uint32_t c = 0; c < config.channels; ++c) {
      for (unsigned a = 0; a < n; ++a) {
        for (unsigned b = a + 1; b < n; ++b) {
          const auto [at_a, at_b] = pair(a, b, config.job);
          ring->set_queue_pair(a, b, at_a, c);
          ring->set_queue_pair(b, a, at_b, c);
        }
      }
      for (unsigned a = 0; pairs_by_step > 0 && a < n; ++a) {
        std::vector<std::pair<QpNumber, QpNumber>> more;
        for (unsigned i = 0; i < pairs_by_step; ++i) more.push_back(pair(a, (a + 1) % n, config.job));
        ring->take_by_step(a, (a + 1) % n, more, c);
      }
    }
    ring->start();
  }
  std::pair<QpNumber, QpNumber> pair(unsigned a, unsigned b, JobId job) {
    const QpNumber at_a = network.nic(a).clients().reserve(1), at_b = network.nic(b).clients().reserve(1);
    clos.connect(a, at_a, b, at_b, 0, job);
    return {at_a, at_b};
  }
  void run() {
    for (int i = 0; i < 100 && !ring->done(); ++i) network.run_until(network.now() + milliseconds(10));
    EXPECT_TRUE(ring->done());
    EXPECT_EQ(ring->errors() + ring->wrong(), 0u) << ring->first_error();
  }

  unsigned hosts;
  StepPackets packets;
  Network network;
  Clos clos;
  std::unique_ptr<CollectiveTraffic> ring;
};

}  // namespace loomnet::testing
