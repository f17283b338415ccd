// One randomised run of in-network aggregation, drawn from a seed: jobs, places, windows, pools, faults.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "clock/random.hpp"
#include "transport/ina/options.hpp"

namespace loomnet::ina::test {

inline constexpr Picoseconds kHop = microseconds(1);

// What a negative control takes away.
struct Removed {
  bool resend_bypass = false;   // RESENDs are handled like DATA
  bool worker_timers = false;
  bool kept_results = false;    // P2
  bool lifelong_numbers = false;  // numbers start anew with each tensor
};

struct Case {
  std::uint64_t seed = 1;
  InaOptions options;
  aggregate_dealloc dealloc = AGGREGATE_ON_COMPLETION;
  bool generation_check = true;
  bool downgrade = true;
  bool ordered = false;  // every link is first in, first out
  bool reboot = false;   // both levels' switches lose slots and tables in the middle
  std::uint32_t slots = 8, rack_slots = 8;
  // places[job][worker]: 0 the root switch, 1 and 2 a rack
  std::vector<std::vector<unsigned>> places;
  std::uint32_t fragments = 40;
  double loss = 0, duplication = 0, overtaking = 0, straggling = 0, marking = 0, boot = 0, floats = 0;
  std::int64_t extra_hops = 0;  // mean, of an overtaken packet
  int priorities = 0;           // 0: equal, 1: by job, 2: random
  Removed removed;

  std::string text() const {
    std::ostringstream out;
    out << "seed " << seed << ": W " << options.window << ", slots " << slots << '/' << rack_slots << ", dealloc "
        << dealloc << ", index " << static_cast<int>(options.index_policy) << ", path "
        << static_cast<int>(options.result_path) << ", loss " << loss << ", dup " << duplication << ", overtaking "
        << overtaking << " by " << extra_hops << ", straggling " << straggling << ", priorities " << priorities
        << (ordered ? ", ordered" : "") << (reboot ? ", reboot" : "") << ", first " << options.first_sequence
        << ", jobs";
    for (const auto& job : places) {
      out << " [";
      for (const unsigned place : job) out << place;
      out << ']';
    }
    return out.str();
  }
};

inline Case draw(aggregate_scheme scheme, std::uint64_t seed) {
  RandomStream random(seed, static_cast<std::uint64_t>(scheme), 0xca5e);
  const auto chance = [&](double p) { return random.uniform() < p; };
  const auto between = [&](std::uint32_t a, std::uint32_t b) { return a + random.below(b - a + 1); };
  Case c;
  c.seed = seed;
  InaOptions& o = c.options;
  o.scheme = scheme;
  o.values = 64;
  o.window = between(1, 12);
  if (scheme == AGGREGATE_SWITCHML && chance(0.5)) o.window = 1u << between(0, 3);
  const unsigned levels = between(1, 2);
  const std::uint32_t jobs = between(1, 3);
  for (std::uint32_t j = 0; j < jobs; ++j) {
    auto& job = c.places.emplace_back(between(1, 5));
    for (unsigned& place : job) place = levels == 1 ? 0 : random.below(3);
  }
  c.slots = between(1, 40);
  c.rack_slots = chance(0.5) ? c.slots : between(1, 40);
  if (scheme == AGGREGATE_SWITCHML) c.slots = c.rack_slots = 2 * o.window * jobs;
  o.pool = c.slots;
  o.index_policy = static_cast<IndexPolicy>(random.below(3));
  c.dealloc = static_cast<aggregate_dealloc>(random.below(3));
  if (scheme == AGGREGATE_ESA && o.index_policy != IndexPolicy::rehash && c.dealloc != AGGREGATE_ON_ACK &&
      chance(0.4)) {
    o.result_path = ResultPath::root;
  }
  c.downgrade = chance(0.8);
  c.fragments = between(16, 60);
  c.loss = chance(0.3) ? 0 : random.uniform() * 0.3;
  c.duplication = chance(0.3) ? 0 : random.uniform() * 0.3;
  c.overtaking = chance(0.2) ? 0 : random.uniform() * 0.8;
  c.extra_hops = between(1, 200);
  c.straggling = chance(0.5) ? 0 : random.uniform() * 0.2;
  c.marking = chance(0.5) ? 0 : random.uniform() * 0.3;
  c.boot = chance(0.5) ? 0 : 0.3;
  c.priorities = static_cast<int>(random.below(3));
  o.congestion_control = chance(0.7);
  o.cwnd_cap = chance(0.5) ? 0 : between(1, o.window);
  o.rto_first = kHop * (chance(0.5) ? 60 : 200);
  o.rto_min = kHop * 60;
  o.switch_rtt = kHop * 4;
  constexpr std::uint32_t kRounds[] = {1, 2, 6, 16};
  o.remind_rtts = kRounds[random.below(4)];
  constexpr std::int64_t kDelays[] = {0, 4, 12, 60};
  o.remind_min = kHop * kDelays[random.below(4)];
  o.components = chance(0.8);
  o.switchml_timeout = kHop * 60;
  // Numbers wrap in the middle of half the runs; under SwitchML only with windows that divide 2^32.
  const bool divides = ((std::uint64_t{1} << 32) % (2 * std::uint64_t{o.window})) == 0;
  if ((scheme != AGGREGATE_SWITCHML || divides) && chance(0.5)) {
    o.first_sequence = (std::int64_t{1} << 32) - between(0, c.fragments);
  }
  if (scheme != AGGREGATE_SWITCHML && o.result_path == ResultPath::server && chance(0.3)) c.floats = 0.3;
  return c;
}

}  // namespace loomnet::ina::test
