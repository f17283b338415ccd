// When circuits are worth patching: the limits of the dark time, what hides it, the account, a new home, and that what
// comes later decides nothing.
#include "circuits/worthwhile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "circuits/assignment.hpp"
#include "clock/random.hpp"

namespace loomnet::circuits {
namespace {

using Circuits = Worthwhile::Circuits;

constexpr std::uint32_t kServers = 4;
const std::vector<std::uint32_t> kFree(kServers, 1);

// One circuit for each server: server 0's with server `peer`, the other two with one another.
Circuits joined(std::uint32_t peer) {
  Circuits found(kServers * kServers);
  const std::uint32_t a = peer == 1 ? 2 : 1, b = 6 - peer - a;
  for (const auto& [i, j] : {std::pair{0u, peer}, std::pair{a, b}}) {
    found[i * kServers + j] = found[j * kServers + i] = 1;
  }
  return found;
}

// A byte takes a second by a circuit, and a hundredth of it by wires: what one server sends, its hot peer's apart, is
// there first.
const Weighing kWeighing{Split::all_or_nothing, {8, 800}};

// Servers that `joined(peer)` joins send each other `hot` bytes; all others nothing.
Use use_of(std::uint32_t peer, std::uint64_t hot, Picoseconds hidden = {}, Picoseconds next_hidden = {}) {
  Use found{.bytes = {}, .exchanges = 2, .hidden = hidden, .next_hidden = next_hidden};
  for (const std::uint32_t each : joined(peer)) found.bytes.push_back(each * hot);
  return found;
}

Worthwhile::Dark dark_of(Picoseconds time) {
  return [time](std::uint32_t circuits) { return circuits > 0 ? time : Picoseconds{}; };
}

TEST(Worthwhile, PatchesWhereItsExchangesSaveMoreThanTheDarkTime) {
  const Weighing slow_wires{Split::all_or_nothing, {800, 8}};  // the other way round: circuits are the faster ones
  for (const auto& [dark, patched] : {std::pair{seconds(198) - Picoseconds{1}, true}, {seconds(198), false}}) {
    Worthwhile rule(kServers, slow_wires);
    const Use use = use_of(2, 100);  // 100 s by wires, 1 s by circuits, twice
    EXPECT_EQ(rule.choose(joined(1), joined(2), kFree, use, dark_of(dark)), patched ? joined(2) : joined(1));
    EXPECT_EQ(rule.account(), patched ? Picoseconds{1} : Picoseconds{});
  }
}

TEST(Worthwhile, ByTheSplitThatIsInUse) {
  // With circuits of the slow kind, all or nothing is better off without one for the hot pair; weighted never is.
  Worthwhile all(kServers, kWeighing), weighted(kServers, {Split::weighted, kWeighing.rates});
  const Use use = use_of(2, 100);
  EXPECT_EQ(all.choose(joined(1), joined(2), kFree, use, dark_of({})), joined(1));
  EXPECT_EQ(weighted.choose(joined(1), joined(2), kFree, use, dark_of({})), joined(2));
}

const Weighing kFast{Split::all_or_nothing, {800, 8}};

TEST(Worthwhile, WithoutDarkTimeAtEachChangeThatSaves) {
  Worthwhile rule(kServers, kFast);
  Circuits present = joined(1);
  for (const std::uint32_t peer : {2u, 3u, 3u, 1u, 2u}) {
    present = rule.choose(present, joined(peer), kFree, use_of(peer, 1), dark_of({}));
    EXPECT_EQ(present, joined(peer));
  }
  const Circuits other = rule.choose(present, joined(3), kFree, use_of(3, 0), dark_of({}));
  EXPECT_EQ(other, joined(2)) << "without bytes nothing is saved";
}

TEST(Worthwhile, NeverWhereTheDarkTimeIsEndless) {
  Worthwhile rule(kServers, kFast);
  for (int n = 0; n < 2000; ++n) {
    const std::uint32_t peer = 2 + n % 2;
    ASSERT_EQ(rule.choose(joined(1), joined(peer), kFree, use_of(peer, 1'000'000), dark_of(kNever)), joined(1));
  }
}

TEST(Worthwhile, ADarkTimeThatWorkHidesCostsNothing) {
  Worthwhile rule(kServers, kFast);
  EXPECT_EQ(rule.choose(joined(1), joined(2), kFree, use_of(2, 1), dark_of(seconds(10))), joined(1));
  // The way back costs 10 s as well, unless work hides it too: 1.98 s are saved.
  const Use back_at_once = use_of(2, 1, seconds(10));
  EXPECT_EQ(rule.choose(joined(1), joined(2), kFree, back_at_once, dark_of(seconds(10))), joined(2));
  EXPECT_EQ(rule.account(), milliseconds(1980));
}

// Away from home all is lost that circuits for other demands lose; at most one dark time of it counts against the account.
TEST(Worthwhile, GoesHomeBeforeItOwesMoreThanADarkTime) {
  Worthwhile rule(kServers, kFast);
  const Picoseconds dark = seconds(5);
  Circuits present = rule.choose(joined(1), joined(2), kFree, use_of(2, 4), dark_of(dark));
  EXPECT_EQ(present, joined(2)) << "7.92 s are saved";
  EXPECT_EQ(rule.account(), milliseconds(2920));
  // Home carries this demand 3.96 s sooner than what there is; so do new circuits, and both are dark for 5 s.
  present = rule.choose(present, joined(1), kFree, use_of(1, 2), dark_of(dark));
  EXPECT_EQ(present, joined(1));
  EXPECT_EQ(rule.account(), milliseconds(-2080));
  // At home nothing is lost any more, and what leaves home again must pay for that first.
  EXPECT_EQ(rule.choose(present, joined(3), kFree, use_of(3, 3), dark_of(dark)), joined(1)) << "5.94 s would be saved";
  EXPECT_EQ(rule.choose(present, joined(3), kFree, use_of(3, 4), dark_of(dark)), joined(3)) << "7.92 s are";
}

TEST(Worthwhile, WhatIsForgoneAddsUpWhereThereAreNoCircuits) {
  const Circuits none(kServers * kServers);
  Worthwhile rule(kServers, kFast);
  Circuits present = none;
  int requests = 0;
  while (present == none && requests < 100) {
    present = rule.choose(present, joined(2), kFree, use_of(2, 1), dark_of(seconds(20)));
    ++requests;
  }
  EXPECT_EQ(requests, 11) << "1.98 s each, more than 20 s together";
  EXPECT_EQ(rule.home(), joined(2));
  // Demands that take turns have nothing in common that one map would carry.
  Worthwhile other(kServers, kFast);
  for (int n = 0; n < 30; ++n) {
    const std::uint32_t peer = 1 + static_cast<std::uint32_t>(n % 3);
    ASSERT_EQ(other.choose(none, joined(peer), kFree, use_of(peer, 1), dark_of(seconds(25))), none);
  }
}

// Circuits that the start has may be needed again, so that a new home is paid from what has been saved before.
TEST(Worthwhile, ANewHomeIsPaidByTheAccount) {
  const Picoseconds dark = seconds(5);
  for (const std::uint64_t hot : {3, 100}) {
    Worthwhile rule(kServers, kFast);
    Circuits present = rule.choose(joined(1), joined(2), kFree, use_of(2, hot), dark_of(dark));
    EXPECT_EQ(present, joined(2));
    present = rule.choose(present, joined(1), kFree, use_of(1, 4), dark_of(dark));
    EXPECT_EQ(present, joined(1));
    for (int n = 0; n < 8; ++n) present = rule.choose(present, joined(3), kFree, use_of(3, 1), dark_of(dark));
    EXPECT_EQ(present, joined(hot == 100 ? 3 : 1));
  }
}

TEST(Worthwhile, CircuitsThatOthersChangedAreItsStart) {
  Worthwhile rule(kServers, kFast);
  rule.choose(joined(1), joined(2), kFree, use_of(2, 4), dark_of(seconds(5)));
  EXPECT_EQ(rule.home(), joined(1));
  rule.choose(joined(3), joined(3), kFree, use_of(3, 4), dark_of(seconds(5)));
  EXPECT_EQ(rule.home(), joined(3));
  EXPECT_EQ(rule.account(), Picoseconds{});
}

TEST(Worthwhile, GoesToNoCircuitsWhosePortsHaveFailed) {
  Worthwhile rule(kServers, kFast);
  const Picoseconds dark = milliseconds(1);
  ASSERT_EQ(rule.choose(joined(1), joined(2), kFree, use_of(2, 4), dark_of(dark)), joined(2));
  Circuits without = joined(2), wanted(kServers * kServers);
  without[0 * kServers + 2] = without[2 * kServers + 0] = 0;
  const std::vector<std::uint32_t> free{0, 1, 1, 1};
  wanted[1 * kServers + 3] = wanted[3 * kServers + 1] = 1;
  // Home, joined(1), would be best for this demand and needs server 0's port.
  const Circuits found = rule.choose(without, wanted, free, use_of(1, 4), dark_of(dark));
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(rule.home(), without);
}

// --- random demands --------------------------------------------------------------------------------------
constexpr std::uint32_t kRegion = 6;
const std::vector<std::uint32_t> kThree(kRegion, 3);

struct Request {
  Use use;
  Circuits wanted;
};

std::vector<Request> requests(std::uint64_t seed, std::size_t count) {
  RandomStream random(seed, 1, 1);
  std::vector<Request> found;
  std::vector<std::uint64_t> bytes(kRegion * kRegion);
  for (std::size_t n = 0; n < count; ++n) {
    if (n == 0 || random.below(3) > 0) {  // else the demand stays
      for (std::uint32_t i = 0; i < kRegion; ++i) {
        for (std::uint32_t j = 0; j < kRegion; ++j) {
          bytes[i * kRegion + j] = i == j ? 0 : random.below(4) == 0 ? random.below(100) : random.below(10);
        }
      }
    }
    std::vector<std::uint64_t> demand(bytes.size());
    for (std::uint32_t i = 0; i < kRegion; ++i) {
      for (std::uint32_t j = 0; j < kRegion; ++j) {
        demand[i * kRegion + j] = std::max(bytes[i * kRegion + j], bytes[j * kRegion + i]);
      }
    }
    const Picoseconds hidden = found.empty() ? Picoseconds{} : found.back().use.next_hidden;
    const Picoseconds next = random.below(2) ? seconds(random.below(60)) : Picoseconds{};
    found.push_back({{.bytes = bytes, .exchanges = 1 + random.below(2), .hidden = hidden, .next_hidden = next},
                     assign(demand, kThree, Rule::share).circuits});
  }
  return found;
}

struct Played {
  std::vector<Circuits> chosen;
  std::vector<Picoseconds> owed;  // after each request, beyond what `never` has taken
};

Played play(const std::vector<Request>& all, const Weighing& weighing, Picoseconds dark) {
  Worthwhile rule(kRegion, weighing);
  const std::vector<std::uint64_t> none(kRegion * kRegion);
  const Circuits first = assign(none, kThree, Rule::random, 3).circuits;
  Circuits present = first;
  Played played;
  Picoseconds owed{};
  const auto lasts = [&](const Use& use, const Circuits& circuits) {
    const double each = exchange_seconds(weighing.split, kRegion, use.bytes, circuits, weighing.rates);
    return Picoseconds{std::llround(each * 1e12)} * use.exchanges;
  };
  for (const Request& each : all) {
    const Circuits chosen = rule.choose(present, each.wanted, kThree, each.use, dark_of(dark));
    bool added = false;
    for (std::size_t pair = 0; pair < chosen.size(); ++pair) added |= chosen[pair] > present[pair];
    if (added) owed += std::max(Picoseconds{}, dark - each.use.hidden);
    owed += lasts(each.use, chosen) - lasts(each.use, first);
    played.chosen.push_back(chosen);
    played.owed.push_back(owed);
    present = chosen;
  }
  return played;
}

TEST(Worthwhile, OwesAtMostOneDarkTime) {
  int patched = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Picoseconds dark = seconds(1 << seed % 8);
    const Split split = seed % 2 ? Split::weighted : Split::all_or_nothing;
    const Played played = play(requests(seed, 60), {split, {8, 16}}, dark);
    for (std::size_t n = 1; n < played.chosen.size(); ++n) patched += played.chosen[n] != played.chosen[n - 1];
    for (const Picoseconds owed : played.owed) ASSERT_LE(owed, dark) << seed;
  }
  EXPECT_GT(patched, 500);
}

TEST(Worthwhile, WhatComesLaterDecidesNothing) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<Request> one = requests(seed, 40), other = one;
    const std::vector<Request> tail = requests(seed + 1000, 40);
    std::copy(tail.begin() + 20, tail.end(), other.begin() + 20);
    const Weighing weighing{Split::weighted, {8, 16}};
    const Played a = play(one, weighing, seconds(20)), b = play(other, weighing, seconds(20));
    EXPECT_TRUE(std::equal(a.chosen.begin(), a.chosen.begin() + 20, b.chosen.begin())) << seed;
  }
}

}  // namespace
}  // namespace loomnet::circuits
