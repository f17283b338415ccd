// Reno's window; see reno.hpp.
#include "transport/congestion/reno.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<RenoOptions>& RenoOptions::table() {
  static const OptionTable<RenoOptions> rows("reno");
  return rows;
}

std::uint64_t Reno::slow_start(std::uint64_t delivered) {
  if (!limits_.in_slow_start()) return delivered;
  const std::uint64_t room = limits_.ssthresh - limits_.cwnd;
  const std::uint64_t used = std::min(delivered, room);
  limits_.cwnd += used;
  return delivered - used;
}

void Reno::grow(double bytes) {
  fraction_ += bytes;
  const auto whole = static_cast<std::uint64_t>(std::max(fraction_, 0.0));
  limits_.cwnd += whole;
  fraction_ -= static_cast<double>(whole);
}

void Reno::on_ack(const AckSample& s) {
  if (s.reducing || !s.cwnd_limited) return;
  const std::uint64_t left = slow_start(s.delivered);
  if (left > 0) grow(static_cast<double>(limits_.mss) * static_cast<double>(left) / static_cast<double>(limits_.cwnd));
}

void Reno::on_congestion(const CongestionEvent& e) {
  limits_.ssthresh = std::max<std::uint64_t>(e.flight / 2, 2 * limits_.mss);  // RFC 5681 (4)
}

void Reno::observe(Observer& out) const { out.value("slow_start", limits_.in_slow_start() ? 1 : 0); }

}  // namespace loomnet::congestion
