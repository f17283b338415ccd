// Intervals of flows as the kernel's program reads them, from a seed, and the same as the engine measures them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "clock/random.hpp"
#include "ebpf/astraea_decide.h"
#include "transport/congestion/astraea/features.hpp"

namespace loomnet::testbed {

// One flow on a path of 1 Mb/s to 80 Gb/s and 50 us to 500 ms, whose queue comes and goes.
class Readings {
 public:
  explicit Readings(std::uint64_t seed) : random_(seed, 5, 1) {
    rate_ = between(1.25e5, 1e10);
    base_us_ = between(50, 5e5);
    window_ = static_cast<std::uint32_t>(std::clamp(rate_ * base_us_ / 1e6 / 1'448, 4.0, 20'000.0));
    sums_.at_us = 3'000'000 + random_.below(1'000'000);
    sums_.rtt_sum_us = random_.below(1u << 30);
    sums_.rtt_cnt = ~0u - static_cast<std::uint32_t>(random_.below(5'000));  // wraps on the way
    sums_.rate_cnt = sums_.rtt_cnt;
  }

  astraea_counters begin() const { return sums_; }
  std::uint32_t window() const { return window_; }
  void take(std::uint32_t window) { window_ = std::clamp(window, 4u, 20'000u); }

  // The next interval of some 30 ms; one in thirty has no acknowledgement but its last, which brings no sample.
  astraea_reading next() {
    astraea_reading r{};
    if (random_.below(200) == 0) queue_ = random_.below(6) == 0 ? 0 : between(0.01, 3);
    sums_.at_us += 30'000 + random_.below(6'000);
    if (random_.below(400) == 0) sums_.at_us += random_.below(14'000'000);  // a stall
    const std::uint32_t samples = random_.below(30) == 0 ? 0 : 1 + static_cast<std::uint32_t>(random_.below(150));
    double last = 0;
    for (std::uint32_t i = 0; i < samples; ++i) {
      const double rtt = std::max(1.0, std::floor(base_us_ * (1 + queue_ * (0.9 + 0.2 * random_.uniform()))));
      r.least_rtt_us = static_cast<std::uint32_t>(r.least_rtt_us > 0 ? std::min<double>(r.least_rtt_us, rtt) : rtt);
      sums_.rtt_sum_us += static_cast<std::uint64_t>(rtt);
      ++sums_.rtt_cnt;
      sums_.rate_sum_Bps += static_cast<std::uint64_t>(rate_ * (0.3 + 0.7 * random_.uniform()));
      ++sums_.rate_cnt;
      last = rtt;
    }
    if (random_.below(12) == 0) sums_.lost += static_cast<std::uint32_t>(random_.below(40));
    r.sums = sums_;
    r.srtt_x8_us = last > 0 ? static_cast<std::uint32_t>(8 * last) : srtt_x8_;
    srtt_x8_ = r.srtt_x8_us;
    r.cwnd = window_;
    r.mss = 1'448;
    r.packets_out = static_cast<std::uint32_t>(random_.below(window_ + 1));
    r.most_out = random_.below(4) == 0 ? r.packets_out : window_;
    r.retrans_out = random_.below(10) == 0 ? static_cast<std::uint32_t>(random_.below(5)) : 0;
    r.pacing_Bps = r.srtt_x8_us > 0 ? std::uint64_t{window_} * 1'500 * 8'000'000 / r.srtt_x8_us : 0;
    r.after_timeout = random_.below(100) == 0;
    r.command = r.after_timeout ? window_ * 2 : window_;
    return r;
  }

 private:
  double between(double least, double most) { return least * std::pow(most / least, random_.uniform()); }

  RandomStream random_;
  double rate_, base_us_, queue_ = 0.5;
  std::uint32_t window_, srtt_x8_ = 0;
  astraea_counters sums_{};
};

// As the agent in the engine measures the interval between two readings.
inline astraea::Measured measured(const astraea_counters& base, const astraea_reading& r) {
  const std::uint32_t rates = r.sums.rate_cnt - base.rate_cnt, rtts = r.sums.rtt_cnt - base.rtt_cnt;
  const auto over = [](std::uint64_t sum, std::uint32_t n) { return n > 0 ? static_cast<double>(sum) / n : 0; };
  astraea::Measured m;
  m.avg_thr_Bps = over(r.sums.rate_sum_Bps - base.rate_sum_Bps, rates);
  m.avg_urtt_us = over(r.sums.rtt_sum_us - base.rtt_sum_us, rtts);
  m.srtt_x8_us = r.srtt_x8_us;
  m.loss_Bps =
      static_cast<double>(r.sums.lost - base.lost) * r.mss / (static_cast<double>(r.sums.at_us - base.at_us) / 1e6);
  m.packets_out = r.packets_out;
  m.retrans_out = r.retrans_out;
  m.cwnd = r.cwnd;
  m.pacing_Bps = static_cast<double>(r.pacing_Bps);
  return m;
}

}  // namespace loomnet::testbed
