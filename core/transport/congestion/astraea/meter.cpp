// See meter.hpp.
#include "transport/congestion/astraea/meter.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::astraea {

void Slope::add(double at, double value) {
  ++count;
  x += at;
  y += value;
  xx += at * at;
  xy += at * value;
}

double Slope::slope() const {
  const double spread = count * xx - x * x;
  return count >= 2 && spread > 0 ? (count * xy - x * y) / spread : 0;
}

Meter::Meter(const FlowLimits& limits, const FlowContext& flow)
    : limits_(limits), mtu_share_(static_cast<double>(flow.mss + flow.header) / static_cast<double>(flow.mss)) {}

std::uint32_t Meter::packets(std::uint64_t bytes) const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / limits_.mss, kWindowBound));
}

void Meter::begin(Picoseconds now) {
  began_ = now;
  rate_sum_Bps_ = 0;
  rates_ = acks_ = delivered_ = 0;
  most_out_ = 0;
  rtts_ = {};
  rtt_over_time_ = {};
  lost_before_ = lost_total_;
  sent_before_ = limits_.sent;
}

void Meter::on_ack(const AckSample& s) {
  ++acks_;
  delivered_ += s.delivered;
  if (s.rate_interval.count > 0) {
    rate_sum_Bps_ += s.rate() / 8;
    ++rates_;
  }
  if (s.rtt != kNever && s.rtt.count > 0) {
    rtts_.add(s.rtt.microseconds());
    rtt_over_time_.add((s.now - began_).microseconds(), s.rtt.microseconds());
  }
  acked_ = true;
  sent_then_ = limits_.sent;
  lost_total_ = s.lost_total;
  packets_out_ = s.packets_out;
  most_out_ = std::max(most_out_, packets_out_);
  retransmissions_out_ = s.retransmissions_out;
  srtt_ = s.srtt;
}

Measured Meter::measure(Picoseconds now, double pacing_bps) const {
  const double seconds = std::max((now - began_).seconds(), 1e-6);
  Measured m;
  m.avg_thr_Bps = rates_ > 0 ? rate_sum_Bps_ / static_cast<double>(rates_) : 0;
  m.avg_urtt_us = rtts_.mean_us();
  m.srtt_x8_us = srtt_.microseconds() * 8;
  m.loss_Bps = static_cast<double>(lost_total_ - lost_before_) / seconds;
  // Before the first acknowledgement the sender's own count is all there is.
  m.packets_out = acked_ ? packets_out_ : std::ceil(static_cast<double>(limits_.sent) / limits_.mss);
  m.retrans_out = retransmissions_out_;
  m.cwnd = packets(limits_.cwnd);
  m.pacing_Bps = pacing_bps / 8 * mtu_share_;
  m.rtt_slope = rtt_over_time_.slope();
  m.sent_bytes = static_cast<double>(limits_.sent - sent_before_);
  m.delivered_bytes = static_cast<double>(delivered_);
  return m;
}

}  // namespace loomnet::astraea
