// Whole networks with the example programs on the virtual clock: every packet is accounted for one by
// one, copies and rewritten packets are what captures show, and no sender's byte is written.
#include <gtest/gtest.h>

#include <set>

#include "engine/clos.hpp"
#include "engine/network.hpp"
#include "switch/registry/registry.hpp"
#include "switch_registry/echo_frames.hpp"
#include "trace/blocks.hpp"
#include "trace/recorder.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet {
namespace {

using test::host_tables;
using test::udp_frame;

class Sink final : public Transport {
 public:
  std::string_view name() const override { return "sink"; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest&, Picoseconds) override {}
  void on_packet(PlanePort, PacketPtr p, Picoseconds) override {
    Seen s{{p->header.begin(), p->header.begin() + p->header_length}, p->uid, p->flow, p->message};
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
  struct Seen {
    std::vector<std::uint8_t> bytes;
    std::uint64_t uid;
    std::uint32_t flow, message;
  };
  std::vector<Seen> seen;
};

// Four hosts around one switch.
class Star {
 public:
  static constexpr std::uint16_t kHosts = 4;
  explicit Star(std::string_view program, const ProgramOptions& options = {}) {
    const LinkConfig link{.rate = gigabits(100), .delay = microseconds(1)};
    for (int h = 0; h < kHosts; ++h) network.add_host(1);
    node = network.add_switch(kHosts, make_program(program, kHosts, 3, options));
    network.program(node)->set_tables(host_tables(kHosts, 1, {{1, 2, 3}}));
    for (NodeId h = 0; h < kHosts; ++h) {
      network.connect({h, 0}, {node, static_cast<std::uint16_t>(h)}, link, link);
      auto sink = std::make_unique<Sink>();
      sinks.push_back(sink.get());
      network.nic(h).set_transport(std::move(sink));
    }
    network.set_tap(&recorder, true);
  }
  ~Star() { network.set_tap(nullptr, true); }
  // The frame's bytes behind the UDP header lie in `memory`, which is the sender's.
  void send(NodeId host, const std::vector<std::uint8_t>& frame, std::uint32_t flow,
            std::vector<std::uint8_t>& memory) {
    memory.assign(frame.begin() + 62, frame.end());
    PacketPtr p = network.pool().allocate();
    std::copy_n(frame.begin(), 62, p->header.begin());
    p->header_length = 62;
    p->wire_length = static_cast<std::uint32_t>(frame.size());
    p->payload = {memory.data(), static_cast<std::uint32_t>(memory.size()), 0, PayloadKind::region};
    p->flow = flow, p->message = flow + 1000;
    network.egress(host, 0)->offer(std::move(p), network.now());
    network.run_until(network.now() + microseconds(20));
  }
  std::uint64_t count(std::string_view name) {
    std::vector<SwitchCounter> all;
    network.program(node)->counters(all);
    for (const SwitchCounter& c : all) {
      if (c.name == name) return c.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  PortCapture& capture(std::uint16_t port) {
    return recorder.capture(
        network.egress_half(node, port), network.egress_half(node, port) ^ 1,
        std::make_unique<PortCapture>(node, port, *network.egress(node, port), MacAddress{}, "p", ""));
  }
  Network network{1};
  Recorder recorder{RecorderConfig{}};
  NodeId node = 0;
  std::vector<Sink*> sinks;
};

constexpr std::uint16_t kComment = 1, kPacketId = 5;

TEST(SwitchHostTest, SumAbsorbsAndRewritesWithoutTouchingASendersMemory) {
  Star star("sum");
  PortCapture& in = star.capture(0);
  PortCapture& out = star.capture(3);
  std::vector<std::vector<std::uint8_t>> memory(4);
  for (std::uint8_t i = 0; i < 4; ++i) {
    star.send(0, udp_frame("fd00::4", SUM_PORT, 100, 50 + i, static_cast<std::uint8_t>(i + 1)), 10u + i, memory[i]);
  }
  for (std::uint8_t i = 0; i < 4; ++i) {
    EXPECT_EQ(memory[i], std::vector<std::uint8_t>(100, static_cast<std::uint8_t>(i + 1)));
  }
  ASSERT_EQ(star.sinks[3]->seen.size(), 1u);
  const Sink::Seen& sum = star.sinks[3]->seen[0];
  EXPECT_EQ(sum.flow, 10u);  // the first packet's
  EXPECT_EQ(sum.message, 1010u);
  std::vector<std::uint8_t> expected(64, 1 + 2 + 3 + 4);
  expected.resize(100, 4);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), sum.bytes.begin() + 62));
  // One by one: received = absorbed + sent on; nothing is held anywhere.
  EXPECT_EQ(star.count("received"), 4u);
  EXPECT_EQ(star.count("absorbed"), 3u);
  EXPECT_EQ(star.count("forward_host"), 1u);
  EXPECT_EQ(star.network.pool().outstanding(), 0u);

  const auto came = testing::packets(in.finish(star.network.now()));
  ASSERT_EQ(came.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(came[i].options.at(kComment), "absorbed by the switch program");
    EXPECT_EQ(static_cast<std::uint8_t>(came[i].bytes[62]), i + 1);
  }
  EXPECT_FALSE(came[3].options.contains(kComment));
  const auto left = testing::packets(out.finish(star.network.now()));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].bytes.substr(62), std::string(reinterpret_cast<const char*>(expected.data()), expected.size()));
  EXPECT_EQ(testing::number(left[0].options.at(kPacketId), 0, 8), sum.uid);
}

TEST(SwitchHostTest, MirrorsCopiesAndAnswersAreAccountedForOneByOne) {
  Star star("mirror");
  std::vector<PortCapture*> captures;
  for (std::uint16_t port = 0; port < Star::kHosts; ++port) captures.push_back(&star.capture(port));
  std::vector<std::uint8_t> memory;
  star.send(0, udp_frame("ff05::", 9, 100), 5, memory);
  star.send(2, udp_frame("fd00::4", 7, 80), 6, memory);   // echo: back to host 2
  star.send(2, udp_frame("ff05::9", 9, 80), 6, memory);   // a group that the batch lacks
  star.send(1, udp_frame("fd00::1", 9, 80), 7, memory);   // forwarded
  std::vector<std::uint8_t> expired = udp_frame("ff05::", 9, 80);
  expired[21] = 1;
  star.send(1, expired, 8, memory);  // to the switch's own stack
  std::set<std::uint64_t> uids;
  for (int host = 1; host <= 3; ++host) {
    ASSERT_GE(star.sinks[host]->seen.size(), 1u) << host;
    const Sink::Seen& copy = star.sinks[host]->seen[0];
    EXPECT_EQ(copy.flow, 5u);
    EXPECT_EQ(copy.message, 1005u);
    EXPECT_EQ(copy.bytes.size(), 162u);
    uids.insert(copy.uid);
  }
  EXPECT_EQ(uids.size(), 3u);  // each copy is a packet of its own
  ASSERT_EQ(star.sinks[2]->seen.size(), 2u);
  EXPECT_EQ(star.sinks[2]->seen[1].bytes[14 + 8 + 15], 4);  // the answer comes from fd00::4
  EXPECT_EQ(star.sinks[0]->seen.size(), 1u);
  EXPECT_EQ(star.count("received"), 5u);
  EXPECT_EQ(star.count("passed"), 1u);
  EXPECT_EQ(star.count("replicated"), 2u);
  EXPECT_EQ(star.count("copies"), 3u);
  EXPECT_EQ(star.count("replied"), 1u);
  EXPECT_EQ(star.count("drop_no_group"), 1u);
  EXPECT_EQ(star.count("forward_host"), 1u);
  EXPECT_EQ(star.network.pool().outstanding(), 0u);
  // The captures show each copy at the port that it left by, under its own id.
  std::set<std::uint64_t> shown;
  for (int port = 1; port <= 3; ++port) {
    for (const auto& p : testing::packets(captures[port]->finish(star.network.now()))) {
      if (static_cast<std::uint8_t>(p.bytes[38]) != 0xff) continue;
      if (p.options.contains(kComment)) {
        EXPECT_EQ(p.options.at(kComment), port == 1 ? "passed to the switch's own network stack"
                                                    : "dropped by the switch program: drop_no_group");
      } else {
        EXPECT_EQ(static_cast<std::uint8_t>(p.bytes[21]), 63);
        shown.insert(testing::number(p.options.at(kPacketId), 0, 8));
      }
    }
  }
  EXPECT_EQ(shown, uids);
}

TEST(SwitchHostTest, ACutAnswerIsTimedByItsOwnLength) {
  Star star("mirror", {{"snap", std::int64_t{100}}});
  PortCapture& capture = star.capture(2);
  std::vector<std::uint8_t> memory;
  star.send(2, udp_frame("fd00::4", 7, 1000), 6, memory);
  ASSERT_EQ(star.sinks[2]->seen.size(), 1u);
  EXPECT_EQ(star.sinks[2]->seen[0].bytes.size(), 100u);
  const auto shown = testing::packets(capture.finish(star.network.now()));
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].original, 1062u);
  EXPECT_EQ(shown[1].original, 100u);
  // 100 bytes and 24 of framing at 100 Gb/s.
  EXPECT_EQ(star.network.half(2, false).busy_until() - microseconds(1),
            serialization_time(1062 + 24, gigabits(100)) + serialization_time(124, gigabits(100)));
}

// A transport whose packets are none of the examples' own.
std::pair<Picoseconds, std::uint64_t> roce_write(std::string_view program) {
  Network network(1);
  const LinkConfig link{.rate = gigabits(100), .delay = microseconds(1)};
  for (int h = 0; h < 2; ++h) network.add_host(1);
  const NodeId node = network.add_switch(2, make_program(program, 2, 3));
  ForwardBatch batch;
  batch.generation = 1;
  batch.groups = {{0}, {1}};
  for (std::uint16_t h = 0; h < 2; ++h) {
    batch.hosts.push_back({host_address(h), h});
    network.connect({h, 0}, {node, h}, link, link);
    Nic& nic = network.nic(h);
    nic.set_transport(std::make_unique<roce::RoceTransport>(nic.sink(), roce::RoceOptions{}));
  }
  network.program(node)->set_tables(batch.pack());
  std::vector<PlanePaths> direct(1);
  direct[0].uplinks = {0};
  for (NodeId h = 0; h < 2; ++h) {
    network.nic(h).connect({100 + h, 101 - h, h, 1 - h, 0, direct, direct}, network.now());
  }
  FlowTraffic flows(network, true);
  flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 1 << 20, .message = 65536, .depth = 4});
  flows.start();
  network.run_until(milliseconds(10));
  EXPECT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);
  return {flows.results()[0].end, network.events().processed()};
}

TEST(SwitchHostTest, WhatIsNotTheExamplesOwnRunsAsOverForward) {
  const auto forward = roce_write("forward");
  EXPECT_EQ(roce_write("mirror"), forward);
  EXPECT_EQ(roce_write("sum"), forward);
}

TEST(SwitchHostTest, AResetSwitchHasForgottenItsPackets) {
  Star star("sum");
  std::vector<std::uint8_t> memory;
  for (int i = 0; i < 3; ++i) star.send(0, udp_frame("fd00::4", SUM_PORT, 64), 1, memory);
  star.network.program(star.node)->reset();
  star.network.program(star.node)->set_tables(host_tables(4, 2));
  star.send(0, udp_frame("fd00::4", SUM_PORT, 64), 1, memory);
  EXPECT_TRUE(star.sinks[3]->seen.empty());
  EXPECT_EQ(star.count("absorbed"), 4u);
}

}  // namespace
}  // namespace loomnet
