// What MRC measures of an idle path through a fabric, and how soon it finds one lost packet.
#include <gtest/gtest.h>

#include "engine/clos.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/mrc/mrc_transport.hpp"

namespace loomnet {
namespace {

// Two hosts on two leaves; a write of `bytes` from one to the other.
struct Path {
  Path(BitsPerSecond rate, unsigned planes, Picoseconds delay, std::uint32_t payload, std::uint64_t bytes)
      : shape{.planes = planes,
              .spines = 4,
              .host_link = {.rate = rate, .delay = delay},
              .fabric_link = {.rate = rate, .delay = delay}},
        clos(network, shape),
        // Four links there with a whole packet, four back with a SACK.
        rtt((delay + serialization_time(payload + 166, rate)) * 4 + (delay + serialization_time(178, rate)) * 4),
        flows(network, false) {
    for (unsigned h = 0; h < 2; ++h) {
      mrc::MrcOptions options = mrc::MrcOptions::sim(rtt, rate);
      options.mtu = payload;
      Nic& nic = network.nic(h);
      auto made = std::make_unique<mrc::MrcTransport>(options, nic.sink(), nic.ports());
      if (h == 0) sender = made.get();
      nic.set_transport(std::move(made));
    }
    clos.connect(0, 100, 1, 101, 1);
    flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = bytes, .start = microseconds(200)});
    flows.start();
  }

  Network network{1};
  testing::ClosShape shape;
  testing::Clos clos;
  Picoseconds rtt;
  FlowTraffic flows;
  mrc::MrcTransport* sender = nullptr;
};

TEST(MrcPath, AnIdlePathShowsNoQueueingDelay) {
  for (const std::uint64_t gigabit : {10, 100, 400}) {
    for (const std::uint32_t payload : {2048, 4096}) {
      Path path(gigabits(gigabit), 2, microseconds(1), payload, 4 << 20);
      path.network.run_until(seconds(1));
      ASSERT_TRUE(path.flows.done());
      EXPECT_LE(path.sender->sender(100).delay().average(), nanoseconds(128))
          << gigabit << " Gb/s, " << payload << " B";
      path.network.clear();
    }
  }
}

TEST(MrcPath, OneSilentLossIsFoundWithinThreeRoundTrips) {
  for (const std::uint32_t payload : {2048, 4096}) {
    Path path(gigabits(400), 4, microseconds(1), payload, 16 << 20);
    const Picoseconds at = microseconds(240), packet = serialization_time(payload + 166, gigabits(400));
    const LinkId link = path.clos.host_link(1, 0);
    path.network.schedule(at, LinkChange{.link = link, .backward = false, .impairment = Impairment{.loss = 1}});
    path.network.schedule(at + packet, LinkChange{.link = link, .backward = false, .impairment = Impairment{}});
    path.network.run_until(seconds(1));
    ASSERT_TRUE(path.flows.done());
    EXPECT_EQ(path.network.half(link, true).counters().drops("loss"), 1u);
    const auto& events = path.network.nic(0).events();
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events[0].kind, EventKind::ev_assumed_bad);
    EXPECT_LE(events[0].at - at, path.rtt * 3);
    path.network.clear();
  }
}

}  // namespace
}  // namespace loomnet
