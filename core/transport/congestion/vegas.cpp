// Vegas's window; see vegas.hpp.
#include "transport/congestion/vegas.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::congestion {
namespace {
// Linux: a delayed ACK may have made one or two samples long.
constexpr std::uint32_t kMinSamples = 3;
constexpr std::uint64_t kMinWindow = 2;  // packets
}  // namespace

const OptionTable<VegasOptions>& VegasOptions::table() {
  static const OptionTable<VegasOptions> rows = [] {
    using O = VegasOptions;
    OptionTable<O> t("TcpOptions");
    t.add("vegas_alpha", &O::alpha,
          {.unit = "packets", .doc = "with fewer of its own in queues, the window grows by one a round trip"})
        .add("vegas_beta", &O::beta,
             {.unit = "packets", .doc = "with more of its own in queues, the window shrinks by one a round trip"})
        .add("vegas_gamma", &O::gamma, {.unit = "packets", .doc = "with more of its own in queues, slow start ends"})
        .add("vegas_as_linux", &O::as_linux, {.doc = "slow start doubles in every round trip, not in every other"});
    return t;
  }();
  return rows;
}

void VegasOptions::check() const {
  if (alpha > beta) refuse_option("TcpOptions.vegas_alpha", "must not be above vegas_beta");
}

Vegas::Vegas(FlowLimits& limits, const VegasOptions& options, const FlowContext&) : Reno(limits), options_(options) {}

// Slow start.
void Vegas::grow(const AckSample& s) {
  if ((doubling_ || options_.as_linux) && s.cwnd_limited) slow_start(s.delivered);
}

void Vegas::begin_window(std::uint64_t sent_end) {
  began_ = true;
  window_end_ = sent_end;
  window_min_ = kNever;
  samples_ = 0;
}

void Vegas::on_ack(const AckSample& s) {
  if (s.rtt != kNever) {
    base_rtt_ = std::min(base_rtt_, s.rtt);
    window_min_ = std::min(window_min_, s.rtt);
    ++samples_;
  }
  if (s.reducing) return;
  if (s.in_recovery) return Reno::on_ack(s);
  if (!began_) begin_window(s.sent_end);
  if (s.acked_end < window_end_) {
    if (limits_.in_slow_start()) grow(s);
    return;
  }
  if (limits_.in_slow_start() && !options_.as_linux && doubling_) {
    grow(s);
    doubling_ = false;  // and the next round trip is one of this window
  } else if (samples_ < kMinSamples) {
    doubling_ = true;
    Reno::on_ack(s);
  } else {
    adjust(s);
  }
  begin_window(s.sent_end);
}

// Once per round trip.
void Vegas::adjust(const AckSample& s) {
  const double cwnd = static_cast<double>(limits_.cwnd) / limits_.mss;
  const bool of_last = limits_.in_slow_start() && !options_.as_linux && s.rtt != kNever;
  const double rtt = (of_last ? s.rtt : window_min_).seconds(), base = base_rtt_.seconds();
  queued_ = cwnd * (rtt - base) / base;
  const double whole = std::floor(queued_);  // as Linux counts
  const std::uint64_t least = kMinWindow * limits_.mss;
  if (limits_.in_slow_start()) {
    if (whole <= options_.gamma) {
      doubling_ = true;
      return grow(s);
    }
    const auto reached = static_cast<std::uint64_t>(cwnd * base / rtt * limits_.mss) + limits_.mss;
    limits_.cwnd = std::max(std::min(limits_.cwnd, reached), least);
    limits_.ssthresh = std::max(std::min(limits_.ssthresh, limits_.cwnd - limits_.mss), least);
  } else if (whole > options_.beta) {
    limits_.cwnd = std::max(limits_.cwnd - std::min<std::uint64_t>(limits_.cwnd, limits_.mss), least);
    limits_.ssthresh = std::max(std::min(limits_.ssthresh, limits_.cwnd - limits_.mss), least);
  } else if (whole < options_.alpha && s.cwnd_limited) {
    limits_.cwnd += limits_.mss;
  }
}

void Vegas::on_congestion(const CongestionEvent& e) {
  Reno::on_congestion(e);
  began_ = false;
  doubling_ = true;
}

void Vegas::on_recovered(Picoseconds) { began_ = false; }

// The path may be another by now.
void Vegas::on_restart(Picoseconds) {
  base_rtt_ = kNever;
  began_ = false;
  doubling_ = true;
}

void Vegas::observe(Observer& out) const {
  Reno::observe(out);
  out.value("base_rtt_ps", base_rtt_ == kNever ? 0 : static_cast<double>(base_rtt_.count));
  out.value("queued_packets", queued_);
}

}  // namespace loomnet::congestion
