// The congestion controls that come with the transport. Windows are bytes, in real numbers where an
// increment is a fraction of one.
#pragma once

#include "transport/tcp/congestion.hpp"
#include "transport/tcp/options.hpp"

namespace loomnet::tcp {

std::vector<CongestionFactory> built_in_controls();

// Slow start and congestion avoidance (RFC 5681), counted in bytes (RFC 3465 with L unbounded, as
// Linux does where pacing or SACK bound the burst).
class Reno : public CongestionControl {
 public:
  using CongestionControl::CongestionControl;
  std::string_view name() const override { return "reno"; }
  void on_ack(const AckSample& sample) override;
  std::uint64_t on_congestion(Congestion kind, std::uint64_t flight, Picoseconds now) override;

 protected:
  // Bytes of `delivered` that slow start has not used up.
  std::uint64_t slow_start(std::uint64_t delivered);
  void grow(double bytes);  // adds what may be a fraction

 private:
  double fraction_ = 0;
};

// DCTCP (RFC 8257): the window shrinks by the share of marked bytes.
class Dctcp final : public Reno {
 public:
  Dctcp(Window& window, double g) : Reno(window), g_(g) {}
  std::string_view name() const override { return "dctcp"; }
  bool needs_accurate_ecn() const override { return true; }
  void on_delivered(const AckSample& sample) override;
  std::uint64_t on_congestion(Congestion kind, std::uint64_t flight, Picoseconds now) override;
  double alpha() const { return alpha_; }

 private:
  double g_, alpha_ = 1;  // RFC 8257 4.2: begins at 1
  std::uint64_t delivered_ = 0, marked_ = 0, window_end_ = 0;
};

// HyStart as Linux's CUBIC has it (Ha and Rhee, "Taming the elephants"): ends slow start when the
// RTT of a round rises, or when an unbroken train of ACKs has lasted half the smallest RTT, with an
// allowance for segmentation offload.
class HyStart {
 public:
  // True when slow start should end now.
  bool exit(const AckSample& sample, const Window& window);
  void reset() { *this = HyStart(); }

 private:
  std::uint64_t round_end_ = 0;
  Picoseconds round_start_{}, last_ack_{}, round_min_ = kNever, delay_min_ = kNever;
  std::uint32_t samples_ = 0;
};

// CUBIC (RFC 9438).
class Cubic final : public Reno {
 public:
  static constexpr double kC = 0.4, kBeta = 0.7;
  Cubic(Window& window, bool hystart) : Reno(window), hystart_on_(hystart) {}
  std::string_view name() const override { return "cubic"; }
  void on_ack(const AckSample& sample) override;
  std::uint64_t on_congestion(Congestion kind, std::uint64_t flight, Picoseconds now) override;
  void on_undo(Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  // W_cubic(t) in segments, `t` seconds since the epoch began (RFC 9438 4.2).
  static double window_at(double t, double k, double w_max) {
    return kC * (t - k) * (t - k) * (t - k) + w_max;
  }
  static double k_of(double w_max, double cwnd);  // 4.2, figure 2
  double w_max() const { return w_max_; }

 private:
  void begin_epoch(Picoseconds now);

  bool hystart_on_;
  HyStart hystart_;
  bool limit_seen_ = false;  // a loss or mark has told what the path holds
  Picoseconds epoch_ = kNever, last_ack_{};
  double w_max_ = 0, prior_w_max_ = 0, k_ = 0, w_est_ = 0, cwnd_prior_ = 0;  // segments, seconds
};

}  // namespace loomnet::tcp
