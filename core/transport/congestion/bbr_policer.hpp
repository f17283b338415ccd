// BBR's estimate of a token-bucket policer (Cardwell et al., "BBR: congestion-based congestion
// control", token-bucket policers; Linux: bbr_lt_bw_sampling). Where two intervals in a row lose a
// fifth each and deliver at the same rate, the path is taken to have that rate for a while, without
// probing. To one flow, a queue that another keeps full looks like a policer too.
#pragma once

#include <cmath>

#include "transport/congestion.hpp"

namespace loomnet::congestion {

class BbrPolicer {
 public:
  enum class Change : std::uint8_t { none, begun, ended };

  // Bytes of stream per second; 0 while it is not in use.
  double rate() const { return in_use_ ? rate_ : 0; }
  bool in_use() const { return in_use_; }

  // Every ACK with a rate sample. `limited`: the sample says nothing of the path. `probing`: BBR is
  // in ProbeBW, whose rounds alone count towards the end of use.
  Change on_ack(const AckSample& s, bool round_start, bool lost, bool limited, bool probing) {
    if (in_use_) {
      if (!probing || !round_start || ++rounds_ < kRoundsInUse) return Change::none;
      reset(s);
      return Change::ended;
    }
    if (!sampling_) {  // the first loss: now the bucket is empty
      if (!lost) return Change::none;
      begin_interval(s);
      sampling_ = true;
    }
    if (limited) {
      reset(s);
      return Change::none;
    }
    if (round_start) ++rounds_;
    if (rounds_ < kLeastRounds) return Change::none;
    if (rounds_ > kMostRounds) {
      reset(s);
      return Change::none;
    }
    if (!lost) return Change::none;  // an interval ends where the bucket is empty again
    const std::uint64_t gone = s.lost_total - lost_, delivered = s.delivered_total - delivered_;
    if (delivered == 0 || gone * 256 < delivered * kLossThreshold) return Change::none;
    const Picoseconds interval = s.now - began_;
    if (interval < milliseconds(1)) return Change::none;
    return interval_done(static_cast<double>(delivered) / interval.seconds(), s);
  }
  void reset(const AckSample& s) {
    rate_ = 0;
    in_use_ = sampling_ = false;
    begin_interval(s);
  }

 private:
  // Linux: bbr_lt_intvl_min_rtts, four times that, bbr_lt_loss_thresh (of 256), bbr_lt_bw_ratio,
  // bbr_lt_bw_diff and bbr_lt_bw_max_rtts.
  static constexpr int kLeastRounds = 4, kMostRounds = 16, kRoundsInUse = 48;
  static constexpr std::uint64_t kLossThreshold = 50;
  static constexpr double kAlike = 1.0 / 8, kAlikeBytes = 4000.0 / 8;

  void begin_interval(const AckSample& s) {
    began_ = s.now;
    delivered_ = s.delivered_total;
    lost_ = s.lost_total;
    rounds_ = 0;
  }
  Change interval_done(double rate, const AckSample& s) {
    if (rate_ > 0) {
      const double apart = std::abs(rate - rate_);
      if (apart <= kAlike * rate_ || apart <= kAlikeBytes) {
        rate_ = (rate + rate_) / 2;
        in_use_ = true;
        rounds_ = 0;
        return Change::begun;
      }
    }
    rate_ = rate;
    begin_interval(s);
    return Change::none;
  }

  bool in_use_ = false, sampling_ = false;
  double rate_ = 0;  // of the last interval, or of the policer
  Picoseconds began_{};
  std::uint64_t delivered_ = 0, lost_ = 0;
  int rounds_ = 0;
};

}  // namespace loomnet::congestion
