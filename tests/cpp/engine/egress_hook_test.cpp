// The egress hook at every half-link of a fabric's switches: each packet that leaves is seen once, in
// order of departure and with the queue that it leaves behind, whatever PFC, trimming and faults do;
// and the same packets are seen in the order of time and by windows of a lookahead.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "engine/clos.hpp"
#include "engine/quiet_tap.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet {
namespace {

// What a hook was told of one packet.
struct Seen {
  Picoseconds now{};
  std::uint32_t length = 0;
  QueueClass queue = 0;
  bool marked = false, marks = false;
  std::uint64_t bytes = 0;
  std::uint32_t packets = 0;
  bool operator==(const Seen&) const = default;
};

// Numbers the packets in their source address, which no model reads, and marks one in eight.
class Numbering final : public EgressHook {
 public:
  Numbering(std::vector<Seen>& seen, std::uint64_t seed) : seen_(seen), random_(seed, 0, 0) {}
  EgressVerdict dequeue(std::span<std::uint8_t> header, const Departure& departure) override {
    Seen row{departure.now, departure.frame_length, departure.queue, departure.marked};
    for (const QueuedClass& each : departure.waiting) {
      row.bytes += each.bytes;
      row.packets += each.packets;
    }
    row.marks = random_.below(8) == 0;
    const auto number = static_cast<std::uint32_t>(seen_.size());
    for (int i = 0; i < 4; ++i) header[6 + i] = static_cast<std::uint8_t>(number >> 8 * i);
    seen_.push_back(row);
    return row.marks ? EgressVerdict::mark : EgressVerdict::leave;
  }

 private:
  std::vector<Seen>& seen_;
  RandomStream random_;
};

std::uint32_t number_of(const Packet& packet) {
  std::uint32_t number = 0;
  for (int i = 0; i < 4; ++i) number |= std::uint32_t{packet.header[6 + i]} << 8 * i;
  return number;
}

// Works out the same from what links report.
class Capture final : public testing::QuietTap {
 public:
  struct Sent {
    std::uint32_t number = 0, length = 0;
    Picoseconds start{};
    std::uint64_t bytes = 0;
    bool ce = false;
  };
  std::map<std::uint32_t, std::vector<Sent>> sent_by;  // by half-link
  std::map<std::uint32_t, std::uint64_t> waiting, delivered_by;

  void sent(std::uint32_t half, const Packet& p, Picoseconds start, Picoseconds) override {
    if (p.queue == kMacControlClass) return;
    const bool ce = (p.header[15] & 0x30) == 0x30;
    sent_by[half].push_back({number_of(p), p.wire_length, start, waiting[half], ce});
  }
  void delivered(std::uint32_t half, const Packet& p, Picoseconds) override {
    if (p.queue != kMacControlClass && sent_by[half].at(number_of(p)).length == p.wire_length) {
      ++delivered_by[half];
    }
  }
  void queued(std::uint32_t half, std::uint64_t bytes, Picoseconds) override { waiting[half] = bytes; }
};

struct Case {
  const char* name;
  bool mrc, pfc;
};

testing::ClosShape shape_of(const Case& c) {
  testing::ClosShape shape{.planes = 2,
                           .leaves = 2,
                           .spines = 2,
                           .hosts_per_leaf = 4,
                           .host_link = {.rate = gigabits(50), .delay = microseconds(1)},
                           .fabric_link = {.rate = gigabits(50), .delay = microseconds(2)}};
  for (LinkConfig* link : {&shape.host_link, &shape.fabric_link}) {
    link->trim = c.mrc;
    link->trim_dscp = mrc::dscp::kTrimmed;
    link->data_limit = c.pfc ? 0 : 40'000;
    link->ecn_low = 8'000;
    link->ecn_high = 32'000;
  }
  if (c.pfc) shape.pfc_xoff = 3 * kMaxFrameBytes;
  return shape;
}

struct Outcome {
  std::map<std::uint32_t, std::vector<Seen>> seen;  // by half-link
  std::uint64_t trimmed = 0, pauses = 0, marked = 0;
};

// All hosts write to host 0 and to a neighbour; a link goes down and comes back, others become slower
// and shorter, one loses packets.
Outcome run(const Case& c, Capture* capture) {
  Network network(1);
  const testing::ClosShape shape = shape_of(c);
  testing::Clos clos(network, shape);
  for (unsigned h = 0; h < shape.hosts(); ++h) {
    Nic& nic = network.nic(h);
    if (c.mrc) {
      const auto options = mrc::MrcOptions::sim(microseconds(12), shape.host_link.rate);
      nic.set_transport(std::make_unique<mrc::MrcTransport>(options, nic.sink(), nic.ports()));
    } else {
      nic.set_transport(std::make_unique<roce::RoceTransport>(nic.sink(), roce::RoceOptions{.timeout_exponent = 7}));
    }
  }
  Outcome out;
  for (NodeId node = 0; node < network.nodes(); ++node) {
    for (std::uint16_t port = 0; !network.is_host(node) && port < network.ports(node); ++port) {
      HalfLink* link = network.egress(node, port);
      auto& seen = out.seen[network.egress_half(node, port)];
      link->set_egress(std::make_unique<Numbering>(seen, link->egress_seed()));
    }
  }
  network.set_tap(capture, true);
  network.use_lookahead();
  EXPECT_EQ(network.events().apart(), capture == nullptr);
  network.schedule(microseconds(40), LinkChange{.link = 1, .up = false});
  network.schedule(microseconds(90), LinkChange{.link = 1, .up = true});
  network.schedule(microseconds(50), LinkChange{.link = 0, .rate = gigabits(20)});
  network.schedule(microseconds(60), LinkChange{.link = 3, .delay = nanoseconds(300)});
  network.schedule(microseconds(30), LinkChange{.link = 2, .impairment = Impairment{.loss = 0.02}});
  FlowTraffic flows(network, true);
  for (unsigned h = 0; h < shape.hosts(); ++h) {
    for (unsigned to = 0; to < shape.hosts(); ++to) {
      if (to == h || (to != 0 && to != (h + 1) % shape.hosts())) continue;
      const QpNumber qp = 100 + 2 * (h * shape.hosts() + to);
      clos.connect(h, qp, to, qp + 1, h);
      flows.add({.source = h,
                 .destination = to,
                 .qp = qp,
                 .bytes = 200'000 + h,
                 .message = 1 << 16,
                 .start = microseconds(3 * h)});
    }
  }
  flows.start();
  EXPECT_FALSE(network.run_until(seconds(1)));  // stopped: the flows are done
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      const LinkCounters& counters = network.half(link, forward).counters();
      out.trimmed += counters.trimmed;
      out.pauses += counters.pauses;
      out.marked += counters.marked;
    }
  }
  network.clear();
  EXPECT_EQ(network.pool().outstanding(), 0u);
  return out;
}

class EgressHookTest : public ::testing::TestWithParam<Case> {};

TEST_P(EgressHookTest, SeesEveryPacketOnceAsItLeaves) {
  Capture capture;
  const Outcome by_time = run(GetParam(), &capture);
  if (!GetParam().pfc) {
    EXPECT_EQ(by_time.trimmed > 0, GetParam().mrc);
  }
  EXPECT_EQ(by_time.pauses > 0, GetParam().pfc);
  std::size_t packets = 0, waited = 0, asked = 0, marked = 0;
  for (const auto& [half, seen] : by_time.seen) {
    const auto& sent = capture.sent_by[half];
    ASSERT_EQ(seen.size(), sent.size()) << "half " << half;
    EXPECT_LE(capture.delivered_by[half], sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(sent[i].number, i) << "the tap sees what the hook wrote, once each";
      ASSERT_EQ(seen[i].now, sent[i].start);
      ASSERT_EQ(seen[i].length, sent[i].length);
      ASSERT_EQ(seen[i].bytes, sent[i].bytes) << "what waits behind packet " << i;
      ASSERT_TRUE(i == 0 || seen[i - 1].now < seen[i].now);
      EXPECT_EQ(seen[i].bytes > 0, seen[i].packets > 0);
      EXPECT_LE(seen[i].marked, sent[i].ce);
      waited += seen[i].packets > 0;
      asked += seen[i].marks && !seen[i].marked;
      marked += sent[i].ce && !seen[i].marked;
      EXPECT_LE(sent[i].ce && !seen[i].marked, seen[i].marks);
    }
    packets += sent.size();
  }
  EXPECT_GT(packets, 1'000u);
  EXPECT_GT(waited, packets / 10);
  EXPECT_LT(waited, packets) << "some found the port idle";
  EXPECT_GT(asked, 100u);
  // RoCE without DCQCN sends no ECN-capable packet: asked or not, none is marked.
  EXPECT_EQ(marked > 0, GetParam().mrc);
  EXPECT_LE(marked, asked);
}

TEST_P(EgressHookTest, SeesTheSameByWindowsOfALookahead) {
  Capture capture;
  const Outcome by_time = run(GetParam(), &capture), by_windows = run(GetParam(), nullptr);
  EXPECT_TRUE(by_time.seen == by_windows.seen);
  EXPECT_EQ(by_time.marked, by_windows.marked);
}

INSTANTIATE_TEST_SUITE_P(Switches, EgressHookTest,
                         ::testing::Values(Case{"mrc_trimmed", true, false}, Case{"mrc_pfc", true, true},
                                           Case{"roce_pfc", false, true}, Case{"roce_lossy", false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace loomnet
