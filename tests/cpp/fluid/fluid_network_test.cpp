// Rates and ends of flows that share links, against a simulation that knows only the definition of
// max-min fairness and solves everything anew at every change.
#include "fluid/fluid_network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace loomnet::fluid {
namespace {

using Route = std::vector<LinkIndex>;

struct Ends : FluidNetwork::Sink {
  std::map<std::uint64_t, Picoseconds> at;  // by cookie
  std::function<void(FlowId, std::uint64_t, Picoseconds)> also;
  void finished(FlowId flow, std::uint64_t cookie, Picoseconds now) override {
    EXPECT_TRUE(at.emplace(cookie, now).second) << "flow " << cookie << " ended twice";
    if (also) also(flow, cookie, now);
  }
};

struct Bed {
  EventQueue events;
  FluidNetwork net{events};
  Ends ends;
  LinkIndex link(std::uint64_t gigabits_per_second) { return net.add_link(gigabits(gigabits_per_second)); }
  FlowId start(Route route, std::uint64_t bytes, std::uint64_t cookie, std::uint32_t weight = 1) {
    return net.start(route, bytes, weight, ends, cookie);
  }
  void run(Picoseconds until = seconds(3600)) { events.run_until(until); }
  double gbps(FlowId flow) const { return net.rate(flow) / 1e9; }
};

TEST(FluidNetwork, OneFlowTakesItsBytesOverTheLeastRate) {
  Bed bed;
  const auto a = bed.link(100), b = bed.link(40);
  bed.start({a, b}, 5'000'000, 1);  // 40 Mbit over 40 Gb/s
  bed.run();
  EXPECT_EQ(bed.ends.at.at(1), milliseconds(1));
  EXPECT_EQ(bed.net.flows(), 0u);
}

TEST(FluidNetwork, TheClassicalExampleOfThreeLinks) {
  // A long flow over two links and one short flow on each: the narrower link decides for the long flow.
  Bed bed;
  const auto a = bed.link(10), b = bed.link(30);
  const FlowId both = bed.start({a, b}, 1 << 30, 0);
  const FlowId one = bed.start({a}, 1 << 30, 1), two = bed.start({b}, 1 << 30, 2);
  bed.run(microseconds(1));
  EXPECT_DOUBLE_EQ(bed.gbps(both), 5);
  EXPECT_DOUBLE_EQ(bed.gbps(one), 5);
  EXPECT_DOUBLE_EQ(bed.gbps(two), 25);
}

TEST(FluidNetwork, WeightsAreSharesOfAFullLink) {
  Bed bed;
  const auto a = bed.link(40);
  const FlowId light = bed.start({a}, 1 << 30, 0, 1), heavy = bed.start({a}, 1 << 30, 1, 3);
  bed.run(microseconds(1));
  EXPECT_DOUBLE_EQ(bed.gbps(light), 10);
  EXPECT_DOUBLE_EQ(bed.gbps(heavy), 30);
}

TEST(FluidNetwork, AWeightChangesOnTheWay) {
  Bed bed;
  const auto a = bed.link(40);
  const FlowId one = bed.start({a}, 5'000'000, 0), two = bed.start({a}, 5'000'000, 1);  // 40 Mbit each
  bed.run(milliseconds(1));
  EXPECT_DOUBLE_EQ(bed.gbps(one), 20);
  bed.net.set_weight(two, 1u << 20);  // half is left of both: `two` goes first, then `one`
  EXPECT_NEAR(bed.net.left(two), 2'500'000, 1);
  bed.run(milliseconds(1) + microseconds(1));
  EXPECT_NEAR(bed.gbps(two), 40, 1e-4);
  EXPECT_THROW(bed.net.set_weight(one, 0), std::invalid_argument);
  bed.run();
  EXPECT_NEAR(bed.ends.at.at(1).seconds(), 1.5e-3, 1e-8);
  EXPECT_NEAR(bed.ends.at.at(0).seconds(), 2e-3, 1e-11);  // the link was full all the time
}

TEST(FluidNetwork, WhatAFlowLeavesGoesToTheOthersAtOnce) {
  Bed bed;
  const auto a = bed.link(80);
  bed.start({a}, 5'000'000, 0);   // 1 ms at half the rate
  bed.start({a}, 15'000'000, 1);  // 5 MB in that time, the rest in 1 ms
  bed.run();
  EXPECT_EQ(bed.ends.at.at(0), milliseconds(1));
  EXPECT_EQ(bed.ends.at.at(1), milliseconds(2));
}

TEST(FluidNetwork, AFlowOnADarkLinkStandsStillAndGoesOnWhenThereIsLight) {
  Bed bed;
  const auto a = bed.link(80);
  const FlowId flow = bed.start({a}, 10'000'000, 0);
  bed.run(microseconds(250));
  bed.net.set_rate(a, {});
  bed.run(milliseconds(10));
  EXPECT_EQ(bed.net.rate(flow), 0);
  EXPECT_NEAR(bed.net.left(flow), 7'500'000, 1e-3);
  bed.net.set_rate(a, gigabits(80));
  bed.run();
  EXPECT_EQ(bed.ends.at.at(0), milliseconds(10) + microseconds(750));
}

TEST(FluidNetwork, AReroutedFlowKeepsWhatItHasSent) {
  Bed bed;
  const auto slow = bed.link(8), fast = bed.link(80);
  const FlowId flow = bed.start({slow}, 10'000'000, 0);
  bed.run(milliseconds(5));  // half of it
  bed.net.reroute(flow, Route{fast});
  bed.run();
  EXPECT_EQ(bed.ends.at.at(0), milliseconds(5) + microseconds(500));
}

TEST(FluidNetwork, AStoppedFlowNeverEndsAndItsNumberIsGivenAgain) {
  Bed bed;
  const auto a = bed.link(80);
  const FlowId first = bed.start({a}, 1'000'000, 0);
  bed.net.stop(first);
  EXPECT_FALSE(bed.net.open(first));
  const FlowId second = bed.start({a}, 1'000'000, 1);
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_FALSE(bed.net.open(first));
  EXPECT_THROW(bed.net.stop(first), std::invalid_argument);
  EXPECT_THROW((void)bed.net.left(first), std::invalid_argument);
  EXPECT_THROW(bed.net.reroute(first, Route{a}), std::invalid_argument);
  bed.run();
  EXPECT_FALSE(bed.ends.at.contains(0));
  EXPECT_EQ(bed.ends.at.at(1), microseconds(100));
}

TEST(FluidNetwork, ASinkMayStopAFlowThatEndsInTheSameMoment) {
  Bed bed;
  const auto a = bed.link(80);
  std::vector<FlowId> both{bed.start({a}, 1'000'000, 0), bed.start({a}, 1'000'000, 1)};
  bed.ends.also = [&](FlowId, std::uint64_t cookie, Picoseconds) {
    const FlowId other = both[1 - cookie];
    if (bed.net.open(other)) bed.net.stop(other);
  };
  bed.run();
  EXPECT_EQ(bed.ends.at.size(), 1u);
  EXPECT_EQ(bed.net.flows(), 0u);
}

TEST(FluidNetwork, ASinkThatStartsTheNextFlowHasItInTheSameMoment) {
  Bed bed;
  const auto a = bed.link(80);
  bed.ends.also = [&](FlowId, std::uint64_t cookie, Picoseconds) {
    if (cookie < 9) bed.start({a}, 1'000'000, cookie + 1);
  };
  bed.start({a}, 1'000'000, 0);
  bed.run();
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(bed.ends.at.at(i), microseconds(100) * static_cast<std::int64_t>(i + 1));
  }
}

TEST(FluidNetwork, PartsThatShareNoLinkAreNotSolvedAgain) {
  Bed bed;
  std::vector<LinkIndex> links;
  for (int i = 0; i < 100; ++i) links.push_back(bed.link(80));
  for (std::uint64_t i = 0; i < 100; ++i) {
    bed.start({links[i]}, 1'000'000 * (i + 1), 2 * i);
    bed.start({links[i]}, 1'000'000 * (i + 1), 2 * i + 1);
  }
  bed.run();
  EXPECT_EQ(bed.ends.at.size(), 200u);
  EXPECT_EQ(bed.net.work().solved, 100u);  // when they began; both flows of a link end together
  EXPECT_EQ(bed.net.work().visited, 200u);
}

TEST(FluidNetwork, RefusesWhatIsNoFlow) {
  Bed bed;
  const auto a = bed.link(10), b = bed.link(10);
  EXPECT_THROW(bed.start({}, 1, 0), std::invalid_argument);
  EXPECT_THROW(bed.start({a, b, a}, 1, 0), std::invalid_argument);
  EXPECT_THROW(bed.start({7}, 1, 0), std::invalid_argument);
  EXPECT_THROW(bed.start({a}, 0, 0), std::invalid_argument);
  EXPECT_THROW(bed.start({a}, 1, 0, 0), std::invalid_argument);
  EXPECT_EQ(bed.net.flows(), 0u);
}

TEST(FluidNetwork, TheLongestTransferHasAnEndOrNone) {
  Bed bed;
  const auto a = bed.net.add_link({1});
  bed.start({a}, ~0ull, 0);  // more than the clock has
  bed.run();
  EXPECT_TRUE(bed.ends.at.empty());
}

// --- against the definition -----------------------------------------------------------------------
struct Reference {
  struct Flow {
    Route route;
    double rest, weight, rate;
  };
  std::vector<double> links;
  std::map<std::uint64_t, Flow> flows;
  double now = 0;  // seconds

  void solve() {
    std::map<std::uint64_t, bool> fixed;
    std::vector<double> left = links;
    while (fixed.size() < flows.size()) {
      double least = HUGE_VAL;
      std::size_t tight = 0;
      for (std::size_t l = 0; l < links.size(); ++l) {
        double weight = 0;
        for (const auto& [id, flow] : flows) {
          if (!fixed.contains(id) && std::ranges::count(flow.route, l)) weight += flow.weight;
        }
        if (weight > 0 && left[l] / weight < least) {
          least = left[l] / weight;
          tight = l;
        }
      }
      std::vector<std::uint64_t> now_fixed;
      for (auto& [id, flow] : flows) {
        if (fixed.contains(id) || !std::ranges::count(flow.route, tight)) continue;
        flow.rate = std::max(least, 0.0) * flow.weight;
        now_fixed.push_back(id);
      }
      for (const auto id : now_fixed) {
        fixed[id] = true;
        for (const auto l : flows[id].route) left[l] = std::max(0.0, left[l] - flows[id].rate);
      }
    }
  }
  double next_end() const {
    double first = HUGE_VAL;
    for (const auto& [id, flow] : flows) {
      if (flow.rate > 0) first = std::min(first, now + flow.rest / flow.rate);
    }
    return first;
  }
  void pass(double until) {
    for (auto& [id, flow] : flows) flow.rest -= flow.rate * (until - now);
    now = until;
  }
};

void compare(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 draw(seed);
  const auto below = [&](std::uint64_t n) { return draw() % n; };
  Bed bed;
  Reference reference;
  const std::size_t links = 2 + below(10);
  for (std::size_t i = 0; i < links; ++i) {
    const std::uint64_t rate = 1 + below(100);
    bed.link(rate);
    reference.links.push_back(static_cast<double>(rate) * 1e9);
  }
  std::map<std::uint64_t, FlowId> open;
  std::map<std::uint64_t, double> ended;
  const auto some_route = [&] {
    Route route;
    for (LinkIndex l = 0; l < links; ++l) {
      if (below(3) == 0) route.push_back(l);
    }
    if (route.empty()) route.push_back(static_cast<LinkIndex>(below(links)));
    return route;
  };
  double now = 0;
  for (std::uint64_t step = 0; step < 60; ++step) {
    // What happens by itself until the next change.
    const double until = now + static_cast<double>(below(1'000'000)) * 1e-9;
    while (reference.next_end() < until) {
      reference.pass(reference.next_end());
      std::erase_if(reference.flows, [&](const auto& entry) {
        if (entry.second.rest > 1e-5) return false;  // bits
        ended[entry.first] = reference.now;
        return true;
      });
      reference.solve();
    }
    reference.pass(until);
    now = until;
    bed.run(Picoseconds{static_cast<std::int64_t>(std::llround(now * 1e12))});
    for (auto it = open.begin(); it != open.end();) {
      const bool here = bed.net.open(it->second), there = reference.flows.contains(it->first);
      ASSERT_EQ(here, there) << "flow " << it->first << " at " << now;
      if (here) {
        ASSERT_NEAR(bed.net.rate(it->second), reference.flows[it->first].rate,
                    1e-6 * reference.flows[it->first].rate + 1);
        ASSERT_NEAR(bed.net.left(it->second) * 8, reference.flows[it->first].rest, 100);
      } else {
        ASSERT_NEAR(bed.ends.at.at(it->first).seconds(), ended.at(it->first), 1e-9);
      }
      it = here ? std::next(it) : open.erase(it);
    }
    // Some changes in one moment.
    for (std::uint64_t change = 1 + below(4); change > 0; --change) {
      const std::uint64_t kind = below(12);
      if (kind < 6 || open.empty()) {
        const Route route = some_route();
        const std::uint64_t bytes = 1 + below(5'000'000), id = step * 10 + change;
        const auto weight = static_cast<std::uint32_t>(1 + (below(2) ? 0 : below(5)));
        open[id] = bed.start(route, bytes, id, weight);
        reference.flows[id] = {route, 8.0 * static_cast<double>(bytes), static_cast<double>(weight), 0};
        continue;
      }
      auto chosen = std::next(open.begin(), static_cast<std::ptrdiff_t>(below(open.size())));
      if (kind == 6) {
        bed.net.stop(chosen->second);
        reference.flows.erase(chosen->first);
        open.erase(chosen);
      } else if (kind == 7) {
        const Route route = some_route();
        bed.net.reroute(chosen->second, route);
        reference.flows[chosen->first].route = route;
      } else if (kind >= 10) {
        const auto weight = static_cast<std::uint32_t>(1 + below(5));
        bed.net.set_weight(chosen->second, weight);
        reference.flows[chosen->first].weight = weight;
      } else {
        const auto link = static_cast<LinkIndex>(below(links));
        const std::uint64_t rate = kind == 8 ? 0 : 1 + below(100);
        bed.net.set_rate(link, gigabits(rate));
        reference.links[link] = static_cast<double>(rate) * 1e9;
      }
    }
    reference.solve();
  }
}

TEST(FluidNetwork, RandomChangesHaveTheRatesOfTheDefinition) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    compare(seed);
    if (HasFatalFailure()) return;
  }
}

TEST(FluidNetwork, TheSameChangesGiveTheSameEndsToTheBit) {
  const auto once = [] {
    Bed bed;
    std::mt19937_64 draw(7);
    std::vector<LinkIndex> links;
    for (int i = 0; i < 20; ++i) links.push_back(bed.link(1 + draw() % 100));
    for (std::uint64_t i = 0; i < 500; ++i) {
      Route route{links[draw() % 20]};
      const LinkIndex other = links[draw() % 20];
      if (other != route[0]) route.push_back(other);
      bed.start(route, 1 + draw() % 10'000'000, i);
    }
    bed.run();
    return bed.ends.at;
  };
  const auto first = once(), second = once();
  ASSERT_EQ(first.size(), 500u);
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace loomnet::fluid
