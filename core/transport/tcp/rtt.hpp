// Round-trip times of one connection and the retransmission timeout from them (RFC 6298).
#pragma once

#include <algorithm>

#include "clock/time.hpp"

namespace loomnet::tcp {

class RttEstimator {
 public:
  RttEstimator(Picoseconds rto_initial, Picoseconds rto_min, Picoseconds rto_max)
      : rto_(rto_initial), rto_min_(rto_min), rto_max_(rto_max) {}

  // One ACK's sample: `rtt` of the first segment it covers, the receiver's delay included; `least`
  // of the last one, which is the path's.
  void sample(Picoseconds rtt, Picoseconds least, Picoseconds now) {
    if (rtt.count <= 0 || least.count <= 0) return;
    if (min_ == kNever || least <= min_ || now - min_at_ > kMinWindow) min_ = least, min_at_ = now;
    if (srtt_.count == 0) {
      srtt_ = rtt;
      rttvar_ = rtt / 2;
    } else {
      const Picoseconds error = srtt_ > rtt ? srtt_ - rtt : rtt - srtt_;
      rttvar_ = (rttvar_ * 3 + error) / 4;
      srtt_ = (srtt_ * 7 + rtt) / 8;
    }
    rto_ = std::min(srtt_ + std::max(rttvar_ * 4, rto_min_), rto_max_);
  }
  bool known() const { return srtt_.count > 0; }
  Picoseconds srtt() const { return srtt_; }
  Picoseconds rttvar() const { return rttvar_; }
  // Smallest of the last 300 s (Linux's tcp_min_rtt_wlen); kNever before the first sample.
  Picoseconds min() const { return min_; }
  // After `backoff` timeouts in a row (RFC 6298 5.5).
  Picoseconds rto(std::uint32_t backoff = 0) const {
    Picoseconds t = rto_;
    while (backoff-- > 0 && t < rto_max_) t = t * 2;
    return std::min(t, rto_max_);
  }

 private:
  static constexpr Picoseconds kMinWindow = seconds(300);
  Picoseconds srtt_{}, rttvar_{}, min_ = kNever, min_at_{};
  Picoseconds rto_, rto_min_, rto_max_;
};

}  // namespace loomnet::tcp
