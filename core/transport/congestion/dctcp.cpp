// The share of marked bytes per window, and the reduction by it.
#include "transport/congestion/dctcp.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<DctcpOptions>& DctcpOptions::table() {
  static const OptionTable<DctcpOptions> rows = [] {
    OptionTable<DctcpOptions> t("TcpOptions");
    t.add("dctcp_g", &DctcpOptions::g,
          {.doc = "gain of the marked share's moving average (RFC 8257 4.2)", .least = 0, .most = 1, .above = true});
    return t;
  }();
  return rows;
}

void Dctcp::count(const AckSample& s) {
  if (s.delivered == 0) return;
  delivered_ += s.delivered;
  marked_ += s.ce_delivered;
  if (s.acked_end < window_end_) return;
  const double fraction = static_cast<double>(marked_) / static_cast<double>(delivered_);
  alpha_ = alpha_ * (1 - g_) + g_ * fraction;  // RFC 8257 3.3 (7)
  delivered_ = marked_ = 0;
  window_end_ = s.sent_end;
}

void Dctcp::on_ack(const AckSample& s) {
  if (!counted_) count(s);
  counted_ = false;
  Reno::on_ack(s);
}

// The mark that reduces the window counts in the share that it is reduced by.
void Dctcp::on_congestion(const CongestionEvent& e) {
  if (e.ack && e.ack->delivered > 0 && !counted_) {
    count(*e.ack);
    counted_ = true;
  }
  if (e.kind != Congestion::ecn) return Reno::on_congestion(e);
  const auto reduced = static_cast<std::uint64_t>(static_cast<double>(limits_.cwnd) * (1 - alpha_ / 2));
  limits_.ssthresh = std::max<std::uint64_t>(reduced, 2 * limits_.mss);  // RFC 8257 3.3 (9)
}

void Dctcp::observe(Observer& out) const {
  Reno::observe(out);
  out.value("alpha", alpha_);
}

}  // namespace loomnet::congestion
