// A queue pair's congestion control: what RoCE measures for it, and how its limits are obeyed.
#include <algorithm>
#include <stdexcept>

#include "transport/roce/roce_state.hpp"

namespace loomnet::roce {

std::uint64_t RoceTransport::window_of(const QueuePair& qp) const {
  if (!qp.regulator || qp.regulator->limits.cwnd == kNoLimit) return window_;
  return std::clamp<std::uint64_t>(qp.regulator->limits.cwnd / options_.payload_mtu, 1, window_);
}

void RoceTransport::regulate(Regulator& regulator, std::uint64_t stream) const {
  FlowContext flow;
  flow.mss = options_.payload_mtu;
  flow.line_rate = options_.line_rate;
  if (options_.network_rtt.count > 0) flow.base_rtt = flow.network_rtt = options_.network_rtt;
  // A bandwidth-delay product where it is known, else what TCP begins with (RFC 6928).
  flow.initial_window = std::max<std::uint64_t>(
      10ull * flow.mss, options_.network_rtt.count > 0 ? bytes_in(options_.network_rtt, {options_.line_rate}) : 0);
  flow.seed = options_.seed;
  flow.stream = stream;
  regulator.limits = fresh_limits(flow);
  regulator.control = control_(regulator.limits, flow);
}

void RoceTransport::watch_tick(QueuePair& qp) {
  const Regulator& r = *qp.regulator;
  if (r.control->traits.lazy) return;
  ticks_.set(r.index, r.limits.next_tick);
}

void RoceTransport::run_ticks(Picoseconds now) {
  while (ticks_.next() <= now) {
    QueuePair& qp = *regulated_[ticks_.front()];
    if (qp.regulator->limits.next_tick <= now) qp.regulator->control->on_tick(now);
    watch_tick(qp);
    ready_data(qp, now);
  }
}

void RoceTransport::on_congestion(QueuePair& qp, Congestion kind, Picoseconds now) {
  Regulator& r = *qp.regulator;
  // The answer to a repeated packet would time neither copy.
  if (kind != Congestion::notified) r.timed_count = 0;
  CongestionEvent event;
  event.kind = kind;
  event.now = now;
  const Requester& requester = qp.requester;
  event.flight = r.control->traits.counts_payload ? requester.sent_bytes() - requester.acked_bytes(options_.payload_mtu)
                                                  : (requester.sent() - requester.acked()) * options_.payload_mtu;
  r.control->on_congestion(event);
  watch_tick(qp);
}

// `bytes`: of the packet on the wire.
void RoceTransport::on_sent(QueuePair& qp, const Segment& segment, std::uint32_t bytes, Picoseconds now) {
  Regulator& r = *qp.regulator;
  if (segment.ack_request && !segment.retransmission && r.timed_count < Regulator::kTimed && r.measures_rtt()) {
    r.timed[(r.first_timed + r.timed_count++) % Regulator::kTimed] = {segment.sequence, now};
  }
  count_sent(r.limits, *r.control, bytes, now);
  if (r.limits.pacing_rate > 0) {
    const double gap = static_cast<double>(bytes) * 8e12 / r.limits.pacing_rate;
    r.next_send = std::max(r.next_send, now) + Picoseconds{static_cast<std::int64_t>(gap)};
  }
}

void RoceTransport::on_progress(QueuePair& qp, std::uint64_t packets, const Received& answer, Picoseconds now) {
  Regulator& r = *qp.regulator;
  if (!r.measures_rtt()) return;
  const Requester& requester = qp.requester;
  const std::uint64_t mtu = options_.payload_mtu;
  AckSample s;
  s.now = now;
  s.acked = s.delivered = packets * mtu;
  r.delivered += s.delivered;
  s.delivered_total = r.delivered;
  while (r.timed_count > 0 && r.timed[r.first_timed].sequence < requester.acked()) {
    s.rtt = now - r.timed[r.first_timed].at;  // of the newest that is acknowledged
    r.first_timed = (r.first_timed + 1) % Regulator::kTimed;
    --r.timed_count;
  }
  if (s.rtt != kNever) {
    r.min_rtt = std::min(r.min_rtt, s.rtt);
    r.srtt = r.srtt.count == 0 ? s.rtt : r.srtt + (s.rtt - r.srtt) / 8;
  }
  if (!r.control->traits.sees_acks) return;
  if (answer.has_marks && echoes_marks_) {
    // The peer is not trusted: no more packets count as marked than this answer acknowledges. A count
    // below the last one is of an older answer and is ignored.
    const std::uint32_t fresh = answer.marks - r.marks;
    if (fresh < 1u << 31) {
      s.ce_delivered = std::min<std::uint64_t>(fresh, packets) * mtu;
      r.marks = answer.marks;
    }
    s.marked = s.ce_delivered > 0;
  }
  s.srtt = r.srtt;
  s.min_rtt = r.min_rtt;
  const std::uint64_t out = requester.sent() - requester.acked();
  s.in_flight = out * mtu;
  s.prior_in_flight = s.in_flight + s.delivered;
  s.packets_out = static_cast<std::uint32_t>(out);
  s.sent_end = requester.sent() * mtu;
  s.acked_end = requester.acked() * mtu;
  s.cwnd_limited = out + packets >= window_of(qp);
  if (r.control->traits.counts_payload) {
    s.acked_end = requester.acked_bytes(options_.payload_mtu) - r.begin;
    s.sent_end = requester.sent_bytes() - r.begin;
    s.acked = s.delivered = s.acked_end - r.acked_end;
    s.delivered_total = r.acked_end = s.acked_end;
    s.ce_delivered = std::min(s.ce_delivered, s.delivered);
    s.in_flight = s.sent_end - s.acked_end;
    s.prior_in_flight = s.in_flight + s.delivered;
  }
  r.control->on_ack(s);
  watch_tick(qp);
}

// Whole packets.
std::uint64_t RoceTransport::acked(QpNumber number, std::size_t part) const {
  return connection(number).queue_pairs[part].requester.acked() * options_.payload_mtu;
}

void RoceTransport::state(QpNumber number, std::size_t part, Observer& out) const {
  const Connection& c = connection(number);
  if (part >= c.planes) throw std::out_of_range("roce: a connection has one part per plane");
  const QueuePair& qp = c.queue_pairs[part];
  const Requester& requester = qp.requester;
  const std::uint64_t in_flight = (requester.sent() - requester.acked()) * options_.payload_mtu;
  out.value("acked", static_cast<double>(acked(number, part)));
  out.value("in_flight", static_cast<double>(in_flight));
  if (!qp.regulator) return;
  const Regulator& r = *qp.regulator;
  if (r.measures_rtt()) {
    out.value("srtt_ps", static_cast<double>(r.srtt.count));
    out.value("min_rtt_ps", r.min_rtt == kNever ? 0 : static_cast<double>(r.min_rtt.count));
  }
  observe_limits(r.limits, *r.control, out);
}

}  // namespace loomnet::roce
