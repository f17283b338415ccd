// How long packets wait in the queues of a path, by round-trip times: the least one is taken for the
// path's own. NSCC's estimate (Ultra Ethernet 1.0), which MRC's loss timers use too.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "clock/time.hpp"

namespace loomnet::congestion {

class QueueDelay {
 public:
  // `base_rtt`: of a whole packet on an idle path. `median`: sample() gives the median of the last
  // eight (arXiv 2509.07907) in place of the latest.
  QueueDelay(Picoseconds base_rtt, Picoseconds network_rtt, bool trimming, bool median = false)
      : base_us_(base_rtt.microseconds()),
        network_us_(network_rtt.microseconds()),
        target_us_(target_us(network_rtt, trimming)),
        median_(median) {}

  static double target_us(Picoseconds network_rtt, bool trimming) {
    return (trimming ? 0.75 : 1.0) * network_rtt.microseconds();
  }

  // A valid round trip of a packet of a whole MTU, or of one that is sooner serialised by `shorter`:
  // the time that it waited.
  Picoseconds sample(Picoseconds rtt, bool marked, Picoseconds shorter) {
    const double rtt_us = rtt.microseconds() + shorter.microseconds();
    if (rtt_us < base_us_ && rtt.count > 0) base_us_ = rtt_us;
    const double d = rtt_us - base_us_;
    average_us_ += kGain * ((!marked && d > target_us_ ? 0.25 * base_us_ : d) - average_us_);
    return us(median_ ? median(d) : d);
  }
  // A packet was refused: the queue was full.
  void refused() { average_us_ += kGain * (network_us_ - average_us_); }

  Picoseconds average() const { return us(average_us_); }
  Picoseconds base_rtt() const { return us(base_us_); }
  Picoseconds target() const { return us(target_us_); }
  double average_us() const { return average_us_; }
  double base_us() const { return base_us_; }
  double network_us() const { return network_us_; }

 private:
  static constexpr double kGain = 0.0125;
  static Picoseconds us(double t) { return {static_cast<std::int64_t>(t * 1e6)}; }
  double median(double delay_us) {
    recent_[recent_count_++ % recent_.size()] = static_cast<float>(delay_us);
    if (recent_count_ < recent_.size()) return delay_us;
    auto sorted = recent_;
    std::sort(sorted.begin(), sorted.end());
    // Keeps the counter from wrapping to "too few" while staying on the same ring position.
    if (recent_count_ >= 2 * recent_.size()) recent_count_ -= recent_.size();
    return sorted[sorted.size() / 2];
  }

  double base_us_ = 0, network_us_ = 0, target_us_ = 0, average_us_ = 0;
  bool median_ = false;
  std::uint8_t recent_count_ = 0;
  std::array<float, 8> recent_{};
};

}  // namespace loomnet::congestion
