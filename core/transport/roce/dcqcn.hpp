// DCQCN: the sending rate of one RoCE queue pair. Zhu et al., "Congestion Control for Large-Scale
// RDMA Deployments", SIGCOMM 2015, 3.1; constants of "MRC + SRv6 multi-plane fabrics" 5.
//
// Switches mark (congestion point), the receiver sends at most one CNP per gap (notification
// point), the sender (reaction point, here) cuts its rate at each and raises it by time and by
// bytes.
#pragma once

#include <cstdint>

#include "clock/time.hpp"

namespace loomnet::roce {

struct DcqcnOptions {
  bool on = false;
  std::uint64_t line_rate = 0;  // bit/s of a port: where every queue pair begins
  double g = 1.0 / 256;
  Picoseconds alpha_timer = microseconds(55);
  Picoseconds rate_timer = microseconds(55);
  Picoseconds cnp_gap = microseconds(50);
  std::uint64_t byte_counter = 10'000'000;
  std::uint32_t fast_recovery = 5;           // F: stages that halve the way back to the target
  std::uint64_t additive_rate = 40'000'000;  // R_AI, bit/s
  std::uint64_t hyper_rate = 400'000'000;    // R_HAI, bit/s; the publication leaves it open
  std::uint64_t minimum_rate = 100'000'000;  // bit/s, as NICs and simulators have it
};

class Dcqcn {
 public:
  explicit Dcqcn(const DcqcnOptions& options);

  // A CNP has come in.
  void on_cnp(Picoseconds now);
  // A packet of so many bytes on the wire leaves now: when the next one may.
  void on_sent(std::uint32_t bytes, Picoseconds now);
  Picoseconds next_send() const { return next_send_; }

  // Of what `advance` has seen so far.
  double rate() const { return rate_; }
  double target() const { return target_; }
  double alpha() const { return alpha_; }
  bool limited() const { return limited_; }
  // Runs the timers that have expired.
  void advance(Picoseconds now);

 private:
  void raise();

  const DcqcnOptions* options_;
  bool limited_ = false;  // false: at line rate, and no timer runs
  double rate_, target_, alpha_ = 1;
  std::uint64_t bytes_ = 0;                   // since the byte counter last expired
  std::uint32_t by_time_ = 0, by_bytes_ = 0;  // expiries since the last cut
  Picoseconds alpha_due_{}, raise_due_{};
  Picoseconds next_send_{};
};

}  // namespace loomnet::roce
