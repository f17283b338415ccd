// A flow under Astraea's control, on acknowledgements written by hand.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/congestion/astraea/astraea.hpp"

namespace loomnet::astraea::by_hand {

inline constexpr std::uint32_t kMss = 1'000;
inline constexpr FlowContext kFlow{.mss = kMss, .initial_window = 10 * kMss, .header = 72};

struct Seen final : Observer {
  void value(std::string_view name, double value) override { all[std::string(name)] = value; }
  std::map<std::string, double> all;
};

// A flow whose first packet left at `start`; each acknowledgement is of one packet with this round trip.
struct Flow {
  explicit Flow(const OptionValues& options, Picoseconds start = milliseconds(1'002)) : now(start) {
    control = astraea_kind().choose(options)(limits, kFlow);
    send(1);
  }
  void send(std::uint64_t packets) {
    for (std::uint64_t i = 0; i < packets; ++i) count_sent(limits, *control, kMss, now);
  }
  void ack(Picoseconds rtt, std::uint64_t packets = 1, std::uint64_t lost = 0, bool limited = true,
           bool reducing = false) {
    AckSample s;
    s.now = now;
    s.acked = s.delivered = packets * kMss;
    s.rtt = s.srtt = rtt;
    s.rate_interval = rtt;
    s.rate_bytes = limits.cwnd;
    s.lost = lost;
    s.lost_total = lost_total += lost;
    s.packets_out = packets_out;
    s.acked_end = acked_total += s.acked;
    s.sent_end = s.acked_end + limits.cwnd;
    s.cwnd_limited = limited;
    s.reducing = reducing;
    control->on_ack(s);
  }
  // Goes on to `until` with an acknowledgement each millisecond, and calls ticks when they are due.
  void go(Picoseconds until, Picoseconds rtt) {
    while (now < until) {
      now += milliseconds(1);
      tick();
      ack(rtt);
      send(1);
    }
  }
  void tick() {
    while (tick_at(limits, *control) <= now) {
      const Picoseconds at = limits.next_tick;
      ticks.push_back(at);
      control->on_tick(at);
      ASSERT_GT(limits.next_tick, at);
    }
  }
  std::uint64_t window() const { return limits.cwnd / kMss; }
  double seen(const std::string& name) const {
    Seen out;
    control->observe(out);
    return out.all.at(name);
  }
  FlowLimits limits = fresh_limits(kFlow);
  std::unique_ptr<CongestionControl> control;
  Picoseconds now;
  std::uint64_t lost_total = 0, acked_total = 0;
  std::uint32_t packets_out = 10;
  std::vector<Picoseconds> ticks;
};

inline const OptionValues kHeld = {{"policy", std::string("hold")}, {"startup", std::string("none")}};

inline OptionValues with(OptionValues values, const std::string& name, OptionValue value) {
  values.emplace_back(name, std::move(value));
  return values;
}

// A policy whose action is always the same.
inline std::string constant_policy(float before_tanh, PolicySpec spec = {}) {
  const auto in = static_cast<std::uint16_t>(features_of(spec.features) * spec.frames);
  Policy policy(spec, {{.in = in, .out = 1, .weights = std::vector<float>(in), .bias = {before_tanh}}});
  policy.quantise();
  return add_policy(policy.serialize());
}

}  // namespace loomnet::astraea::by_hand
