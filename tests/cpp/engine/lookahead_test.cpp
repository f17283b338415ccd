// Flows over a fabric by windows of a lookahead: the same results as in the order of time, which is
// how they run while somebody watches packets.
#include <gtest/gtest.h>

#include "engine/clos.hpp"
#include "trace/recorder.hpp"
#include "traffic/flow_traffic.hpp"
#include "traffic/graph_traffic.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet {
namespace {

const testing::ClosShape kShape{.planes = 2,
                                .leaves = 2,
                                .spines = 2,
                                .hosts_per_leaf = 4,
                                .host_link = {.rate = gigabits(50), .delay = microseconds(1)},
                                .fabric_link = {.rate = gigabits(50), .delay = microseconds(2)},
                                .pfc_xoff = 3 * kMaxFrameBytes};

struct Shown {
  std::vector<std::uint64_t> figures;
  Picoseconds end, lookahead;
  bool operator==(const Shown&) const = default;
};

void equip(Network& network, bool mrc) {
  for (unsigned h = 0; h < kShape.hosts(); ++h) {
    Nic& nic = network.nic(h);
    if (mrc) {
      const auto options = mrc::MrcOptions::sim(microseconds(12), kShape.host_link.rate);
      nic.set_transport(std::make_unique<mrc::MrcTransport>(options, nic.sink(), nic.ports()));
    } else {
      nic.set_transport(std::make_unique<roce::RoceTransport>(nic.sink(), roce::RoceOptions{.timeout_exponent = 7}));
    }
  }
}

// A link goes down and comes back, another becomes shorter than any.
void disturb(Network& network) {
  network.schedule(microseconds(40), LinkChange{.link = 1, .up = false});
  network.schedule(microseconds(90), LinkChange{.link = 1, .up = true});
  network.schedule(microseconds(60), LinkChange{.link = 3, .delay = nanoseconds(300)});
}

void show(Network& network, Shown& shown);

// All hosts write to two neighbours and to host 0.
Shown run(bool mrc, bool watched) {
  Network network(1);
  testing::Clos clos(network, kShape);
  equip(network, mrc);
  Recorder recorder({.timeline = true});
  if (watched) network.set_tap(&recorder, true);
  network.use_lookahead();
  EXPECT_EQ(network.events().lookahead(), microseconds(1));
  EXPECT_EQ(network.events().apart(), !watched);
  FlowTraffic flows(network, true);
  for (unsigned h = 0; h < kShape.hosts(); ++h) {
    for (unsigned to = 0; to < kShape.hosts(); ++to) {
      const bool neighbour = to == (h + 1) % kShape.hosts() || to == (h + 2) % kShape.hosts();
      if (to == h || (to != 0 && !neighbour)) continue;
      const QpNumber qp = 100 + 2 * (h * kShape.hosts() + to);
      clos.connect(h, qp, to, qp + 1, h);
      flows.add({.source = h,
                 .destination = to,
                 .qp = qp,
                 .bytes = 300'000 + h,
                 .message = 1 << 16,
                 .start = microseconds(3 * h)});
    }
  }
  disturb(network);
  flows.start();
  EXPECT_FALSE(network.run_until(seconds(1)));  // stopped: the flows are done
  EXPECT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);

  EXPECT_EQ(network.now(), flows.ended() + microseconds(1));  // the shortest link's delay when they began
  Shown shown{{}, network.now(), network.events().lookahead()};
  for (const FlowResult& r : flows.results()) {
    EXPECT_EQ(r.status, Status::ok);
    EXPECT_LT(r.arrived, r.end);
    shown.figures.insert(shown.figures.end(), {static_cast<std::uint64_t>(r.end.count),
                                               static_cast<std::uint64_t>(r.arrived.count), r.completed});
  }
  show(network, shown);
  return shown;
}

// Two rings, one each way: every host sends on what it got, after a delay of a lane that both rings
// share, and every second hop waits for the acknowledgement of its host's last transfer as well.
// `across`: one delay waits for two hosts.
Shown run_graph(bool mrc, bool watched, bool across = false) {
  Network network(1);
  testing::Clos clos(network, kShape);
  equip(network, mrc);
  Recorder recorder({.timeline = true});
  if (watched) network.set_tap(&recorder, true);
  GraphTraffic graph(network);
  const unsigned n = kShape.hosts();
  const auto qp = [&](unsigned from, unsigned to) { return QpNumber{100 + from * n + to}; };
  for (unsigned h = 0; h < n; ++h) clos.connect(h, qp(h, (h + 1) % n), (h + 1) % n, qp((h + 1) % n, h), h);
  const auto at_once = graph.add({.duration = microseconds(3)});
  std::vector<std::uint32_t> last(2 * n, at_once);  // by way and host: its last transfer
  std::vector<std::uint32_t> delays;
  for (unsigned step = 0; step < 12; ++step) {
    std::vector<std::uint32_t> sent(2 * n);
    for (unsigned i = 0; i < 2 * n; ++i) {
      const unsigned way = i / n, h = i % n, to = way ? (h + n - 1) % n : (h + 1) % n;
      const unsigned before = way * n + (way ? (h + 1) % n : (h + n - 1) % n);
      delays.push_back(graph.add({.duration = nanoseconds(700 * (h % 3)), .lane = h + 1, .host = h}));
      graph.depend(delays.back(), last[before]);
      sent[i] =
          graph.add({.transfer = true, .source = h, .destination = to, .qp = qp(h, to), .bytes = 60'000 + 100 * i});
      graph.depend(sent[i], delays.back());
      if (step % 2) graph.depend(sent[i], last[i], true);
    }
    last = sent;
  }
  const auto end = graph.add({.host = 0});
  graph.depend(end, last[n - 1]);  // arrives at host 0
  if (across) graph.depend(end, last[0], true), graph.depend(end, last[1], true);
  disturb(network);
  graph.start({});
  EXPECT_EQ(network.events().lookahead(), across ? Picoseconds{} : microseconds(1));
  EXPECT_EQ(network.events().apart(), !across && !watched);
  EXPECT_FALSE(network.run_until(seconds(1)));  // stopped: all is done
  EXPECT_TRUE(graph.done());
  EXPECT_EQ(network.now(), graph.ended() + microseconds(1));

  Shown shown{{}, network.now(), network.events().lookahead()};
  for (const GraphResult& r : graph.results()) {
    EXPECT_LE(r.begin, r.end);
    EXPECT_LE(r.end, r.acked);
    for (const Picoseconds at : {r.begin, r.end, r.acked}) {
      shown.figures.push_back(static_cast<std::uint64_t>(at.count));
    }
  }
  show(network, shown);
  return shown;
}

// What links and hosts counted; ends the run.
void show(Network& network, Shown& shown) {
  auto& out = shown.figures;
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      const LinkCounters& c = network.half(link, forward).counters();
      out.insert(out.end(), {c.packets, c.bytes, c.trimmed, c.max_queue, c.pauses});
      c.each_drop([&](std::string_view, std::uint64_t n) { out.push_back(n); });
    }
  }
  for (unsigned h = 0; h < kShape.hosts(); ++h) {
    const WorkMeter& meter = network.nic(h).meter();
    EXPECT_FALSE(meter.outstanding());
    const auto bins = meter.bins();
    out.insert(out.end(), bins.begin(), bins.end());
    for (const auto& row : {meter.busy(), meter.silences()}) {
      for (const auto& [begin, end] : row) {
        out.insert(out.end(), {static_cast<std::uint64_t>(begin.count), static_cast<std::uint64_t>(end.count)});
      }
    }
  }
  network.clear();
  EXPECT_EQ(network.pool().outstanding(), 0u);
}

TEST(Lookahead, ResultsAreTheSameAsInTheOrderOfTime) {
  for (const bool mrc : {true, false}) {
    const Shown by_windows = run(mrc, false);
    EXPECT_TRUE(by_windows == run(mrc, true)) << (mrc ? "mrc" : "roce");
    EXPECT_EQ(by_windows.lookahead, nanoseconds(300));  // of the link that became shorter
  }
}

TEST(Lookahead, AGraphWhoseHostsHearOfOneAnotherByPacketsRunsByWindows) {
  for (const bool mrc : {true, false}) {
    const Shown by_windows = run_graph(mrc, false);
    EXPECT_TRUE(by_windows == run_graph(mrc, true)) << (mrc ? "mrc" : "roce");
  }
}

TEST(Lookahead, AGraphWithADelayThatWaitsForTwoHostsRunsInTheOrderOfTime) {
  EXPECT_TRUE(run_graph(true, false, true) == run_graph(true, true, true));
}

// How a run of rounds is looked at.
enum class Watch { alone, recorded, in_slices, beside_another };

// Three rounds, in which every host writes to all others. `gap`: between two rounds.
Shown run_rounds(bool mrc, Watch watch, Picoseconds gap, unsigned& apart, bool disturbed = false) {
  Network network(1);
  testing::Clos clos(network, kShape);
  equip(network, mrc);
  Recorder recorder({.timeline = true});
  if (watch == Watch::recorded) network.set_tap(&recorder, true);
  if (watch == Watch::beside_another) network.forbid_lookahead();
  FlowTraffic flows(network, true);
  const unsigned n = kShape.hosts();
  for (unsigned h = 0; h < n; ++h) {
    for (unsigned to = 0; to < n; ++to) {
      if (to == h) continue;
      const QpNumber qp = 100 + 2 * (h * n + to);
      clos.connect(h, qp, to, qp + 1, h);
      flows.add({.source = h, .destination = to, .qp = qp, .bytes = 80'000 + h, .message = 1 << 14, .depth = 2});
    }
  }
  flows.repeat({.rounds = 3, .gap = gap, .apart = nanoseconds(900)});
  flows.start();
  network.use_lookahead();
  if (disturbed) disturb(network);
  std::vector<Picoseconds> stops;
  while (!flows.done()) {
    const Picoseconds end = watch == Watch::in_slices ? network.now() + nanoseconds(7'300) : seconds(1);
    if (!network.run_until(end)) stops.push_back(network.now());
    apart += network.events().apart();
  }
  EXPECT_EQ(flows.wrong(), 0u);
  EXPECT_EQ(flows.results().size(), 3 * n * (n - 1));
  EXPECT_EQ(flows.rounds().size(), 3u);
  EXPECT_EQ(flows.ended(), network.now());
  Shown shown{{}, network.now(), {}};
  for (std::size_t round = 0; round < 3; ++round) {
    // The run stops at the moment at which the last flow ends, and the next round begins then.
    const FlowTraffic::Round& each = flows.rounds()[round];
    EXPECT_EQ(stops.at(round), each.end);
    Picoseconds first = kNever, last{};
    for (std::size_t i = 0; i < n * (n - 1); ++i) {
      const FlowResult& r = flows.results()[round * n * (n - 1) + i];
      first = std::min(first, r.start);
      last = std::max(last, r.end);
    }
    EXPECT_EQ(first, each.begin);
    EXPECT_EQ(last, each.end);
    if (round == 0) continue;
    EXPECT_GE(each.begin, flows.rounds()[round - 1].end + gap);
    EXPECT_LT(each.begin, flows.rounds()[round - 1].end + gap + nanoseconds(900));
  }
  for (const FlowResult& r : flows.results()) {
    for (const Picoseconds at : {r.start, r.end, r.arrived})
      shown.figures.push_back(static_cast<std::uint64_t>(at.count));
  }
  show(network, shown);
  return shown;
}

TEST(Lookahead, RoundsBeginWhenTheOneBeforeHasEndedWhoeverLooks) {
  for (const bool mrc : {true, false}) {
    for (const Picoseconds gap : {Picoseconds{}, nanoseconds(400)}) {
      for (const bool disturbed : {false, true}) {
        unsigned apart = 0, sliced = 0, never = 0;
        const Shown alone = run_rounds(mrc, Watch::alone, gap, apart, disturbed);
        const auto same = [&](Watch watch, unsigned& served) {
          return alone == run_rounds(mrc, watch, gap, served, disturbed);
        };
        EXPECT_TRUE(same(Watch::in_slices, sliced)) << mrc << gap.count << disturbed;
        EXPECT_TRUE(same(Watch::recorded, never)) << mrc << gap.count << disturbed;
        EXPECT_TRUE(same(Watch::beside_another, never)) << mrc << gap.count << disturbed;
        EXPECT_GT(sliced, 0u);  // hosts were served apart while a round could not end
        EXPECT_EQ(never, 0u);
      }
    }
  }
}

TEST(Lookahead, NoFlowOfARoundBeginsAtItsStopOrLater) {
  Network network(1);
  testing::Clos clos(network, kShape);
  equip(network, true);
  FlowTraffic flows(network, false);
  for (unsigned h = 0; h < 4; ++h) {
    clos.connect(h, 100, h + 4, 200, h);
    flows.add({.source = h, .destination = h + 4, .qp = 100, .bytes = 20'000});
  }
  flows.repeat({.rounds = 1'000'000, .apart = nanoseconds(800), .stop = microseconds(100)});
  flows.start();
  while (!flows.done()) network.run_until(seconds(1));
  const std::size_t rounds = flows.rounds().size();
  EXPECT_GT(rounds, 2u);
  EXPECT_GE(flows.results().size(), 4 * rounds);
  EXPECT_LT(flows.results().size(), 4 * rounds + 4);  // a round that has begun in part is not one
  for (const FlowResult& r : flows.results()) EXPECT_LT(r.start, microseconds(100));
  EXPECT_GE(flows.ended() + nanoseconds(800), microseconds(100));
}

// Glass leaves no time between a panel's two sides: all is served in the order of time.
TEST(Lookahead, AFabricWithALinkWithoutDelayHasNone) {
  Network network(1);
  const NodeId a = network.add_host(1), b = network.add_host(1), panel = network.add_panel({1, 0});
  const LinkConfig fibre{.rate = gigabits(100), .delay = microseconds(1)}, glass{};
  network.connect({a, 0}, {panel, 0}, fibre, glass);
  network.connect({b, 0}, {panel, 1}, fibre, glass);
  network.use_lookahead();
  EXPECT_EQ(network.events().lookahead().count, 0);
  EXPECT_FALSE(network.events().apart());
}

}  // namespace
}  // namespace loomnet
