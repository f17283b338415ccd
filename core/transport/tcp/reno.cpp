// Reno and DCTCP.
#include <algorithm>

#include "transport/tcp/algorithms.hpp"

namespace loomnet::tcp {

std::uint64_t Reno::slow_start(std::uint64_t delivered) {
  if (!window_.in_slow_start()) return delivered;
  const std::uint64_t room = window_.ssthresh - window_.cwnd;
  const std::uint64_t used = std::min(delivered, room);
  window_.cwnd += used;
  return delivered - used;
}

void Reno::grow(double bytes) {
  fraction_ += bytes;
  const auto whole = static_cast<std::uint64_t>(std::max(fraction_, 0.0));
  window_.cwnd += whole;
  fraction_ -= static_cast<double>(whole);
}

void Reno::on_ack(const AckSample& s) {
  if (s.reducing || !s.cwnd_limited) return;
  const std::uint64_t left = slow_start(s.delivered);
  if (left > 0)
    grow(static_cast<double>(window_.mss) * static_cast<double>(left) /
         static_cast<double>(window_.cwnd));
}

std::uint64_t Reno::on_congestion(Congestion, std::uint64_t flight, Picoseconds) {
  return std::max<std::uint64_t>(flight / 2, 2 * window_.mss);  // RFC 5681 (4)
}

void Dctcp::on_delivered(const AckSample& s) {
  delivered_ += s.delivered;
  marked_ += s.ce_delivered;
  if (s.acked_end < window_end_) return;
  if (delivered_ > 0) {
    const double fraction = static_cast<double>(marked_) / static_cast<double>(delivered_);
    alpha_ = alpha_ * (1 - g_) + g_ * fraction;  // RFC 8257 3.3 (7)
  }
  delivered_ = marked_ = 0;
  window_end_ = s.sent_end;
}

std::uint64_t Dctcp::on_congestion(Congestion kind, std::uint64_t flight, Picoseconds now) {
  if (kind != Congestion::ecn) return Reno::on_congestion(kind, flight, now);
  const auto reduced =
      static_cast<std::uint64_t>(static_cast<double>(window_.cwnd) * (1 - alpha_ / 2));
  return std::max<std::uint64_t>(reduced, 2 * window_.mss);  // RFC 8257 3.3 (9)
}

}  // namespace loomnet::tcp
