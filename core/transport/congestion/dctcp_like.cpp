// The share of marked packets and the window; see dctcp_like.hpp.
#include "transport/congestion/dctcp_like.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<DctcpLikeOptions>& DctcpLikeOptions::table() {
  static const OptionTable<DctcpLikeOptions> rows = [] {
    OptionTable<DctcpLikeOptions> t("RoceOptions.dctcp_like");
    t.add("dctcp_gain", &DctcpLikeOptions::gain,
          {.doc = "gain of the marked share's moving average (RFC 8257 4.2)",
           .least = 0,
           .most = 1,
           .above = true,
           .field = "gain"})
        .add("dctcp_increase_every_ps", &DctcpLikeOptions::increase_every,
             {.unit = "ps",
              .doc = "the window grows by one packet per so much time without a cut",
              .least = 1,
              .range = "must be more than 0",
              .field = "increase_every"})
        .add("dctcp_least_packets", &DctcpLikeOptions::least_packets,
             {.unit = "packets",
              .doc = "the window never falls below it",
              .least = 1,
              .range = "at least 1 packet",
              .field = "least_packets"});
    return t;
  }();
  return rows;
}

DctcpLike::DctcpLike(FlowLimits& limits, const DctcpLikeOptions& options, const FlowContext&)
    : CongestionControl(limits, {.owns_window = true, .accurate_ecn = true, .notified = false}), options_(options) {
  limits_.cwnd = std::max(limits_.cwnd, least());
}

void DctcpLike::on_ack(const AckSample& s) {
  note_floor(s.now);
  count(s);
  if (s.acked_end >= reduced_until_) {
    if (s.ce_delivered > 0) {
      cut(alpha_ / 2, s.now);
      reduced_until_ = s.sent_end;
    } else {
      grow(s);
    }
  }
}

// One average per window of data (RFC 8257 3.3). The window in which a mark cuts is counted first where
// this acknowledgement ends it.
void DctcpLike::count(const AckSample& s) {
  if (s.delivered == 0) return;
  delivered_ += s.delivered;
  marked_ += s.ce_delivered;
  if (s.acked_end < window_end_) return;
  const double share = static_cast<double>(marked_) / static_cast<double>(delivered_);
  alpha_ = alpha_ * (1 - options_.gain) + options_.gain * share;
  delivered_ = marked_ = 0;
  window_end_ = s.sent_end;
}

void DctcpLike::grow(const AckSample& s) {
  if (grow_due_ == kNever || !s.cwnd_limited) {  // a window that is not used does not grow
    grow_due_ = s.now + options_.increase_every;
    return;
  }
  if (s.now < grow_due_) return;
  const auto steps = (s.now - grow_due_) / options_.increase_every + 1;
  limits_.cwnd = std::min(limits_.cwnd + static_cast<std::uint64_t>(steps) * limits_.mss, limits_.cwnd_most);
  grow_due_ += options_.increase_every * steps;
}

void DctcpLike::cut(double share, Picoseconds now) {
  const std::uint64_t before = limits_.cwnd;
  const auto reduced = static_cast<std::uint64_t>(static_cast<double>(before) * (1 - share));
  limits_.cwnd = std::max(reduced, least());
  grow_due_ = kNever;
  if (limits_.cwnd < before) ++reactions_.cuts;
  if (limits_.cwnd <= least() && floor_since_ == kNever) {
    if (limits_.cwnd < before) ++reactions_.floors;
    floor_since_ = now;
  }
}

void DctcpLike::note_floor(Picoseconds now) {
  if (floor_since_ == kNever) return;
  reactions_.at_floor += now - floor_since_;
  floor_since_ = limits_.cwnd <= least() ? now : kNever;
}

// A loss halves the window (RFC 8257 3.5), a timeout leaves its minimum.
void DctcpLike::on_congestion(const CongestionEvent& e) {
  if (e.kind == Congestion::loss || e.kind == Congestion::refused) cut(0.5, e.now);
  if (e.kind == Congestion::timeout) cut(1, e.now);
}

void DctcpLike::observe(Observer& out) const { out.value("alpha", alpha_); }

}  // namespace loomnet::congestion
