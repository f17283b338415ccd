// What an acknowledgement says: deliveries, round-trip times, losses, the window.
#include <algorithm>

#include "transport/tcp/delivery.hpp"
#include "transport/tcp/framing.hpp"

namespace loomnet::tcp {

void Sender::segment_delivered(const Segment& s, Delivery& d, bool in_order, Picoseconds now) {
  d.delivered += s.length;
  delivered_ += s.length;
  d.delivered_framing += s.framing;
  framing_.delivered += s.framing;
  delivered_at_ = now;
  if (s.retransmissions == 0) {
    const Picoseconds rtt = now - s.sent;
    d.first_rtt = d.first_rtt == kNever ? rtt : std::max(d.first_rtt, rtt);
    d.last_rtt = std::min(d.last_rtt, rtt);
  }
  // An echo older than the last transmission tells that an earlier one arrived. Where a hole is in
  // front the echo is that of the segment before it (RFC 7323 4.3), and tells nothing.
  const bool earlier =
      in_order && d.timestamps && s.retransmissions > 0 && static_cast<std::int32_t>(d.ts_echo - timestamp(s.sent)) < 0;
  rack_.delivered(s, now, rtt_, earlier);
  if (!d.rated || s.delivered > d.prior_delivered || (s.delivered == d.prior_delivered && s.sent > d.sent)) {
    d.rated = true;
    d.prior_delivered = s.delivered;
    d.prior_delivered_framing = s.delivered_framing;
    d.prior_delivered_at = s.delivered_at;
    d.rate_start = s.rate_start;
    d.sent = s.sent;
    d.app_limited = s.app_limited;
    rate_start_ = s.sent;
  }
}

void Sender::take_range(SackRange range, Delivery& d, Picoseconds now) {
  for (SegmentNumber n = board_.find(range.begin); n != board_.end(); ++n) {
    const Segment& s = board_[n];
    if (s.end() > range.end) break;
    if (s.begin < range.begin || s.state == Segment::State::sacked) continue;
    segment_delivered(s, d, false, now);
    board_.mark_sacked(n);
    d.newly_sacked = true;
  }
}

void Sender::take_sack(const Acknowledgement& ack, Delivery& d, Picoseconds now) {
  std::uint8_t first = 0;
  if (ack.sack_count > 0) {
    // RFC 2883 4: a first block below the ACK, or inside the second, reports a duplicate.
    const SackRange& r = ack.sack[0];
    const bool inside = ack.sack_count > 1 && r.begin >= ack.sack[1].begin && r.end <= ack.sack[1].end;
    if (r.begin < r.end && (r.end <= ack.end || inside)) {
      first = 1;
      d.dsack = true;
      ++count_.dsack_received;
      d.tlp_dsack = tlp_end_ != 0 && r.end == tlp_end_;
      rack_.dsack(ack.end, nxt_);
      if (undo_possible_ && undo_retransmissions_ > 0 && r.end > undo_begin_) --undo_retransmissions_;
    }
  }
  std::array<SackRange, TcpOptionFields::kMaxSackBlocks> seen{};
  std::size_t kept = 0;
  for (std::uint8_t i = first; i < ack.sack_count; ++i) {
    SackRange r = ack.sack[i];
    ++count_.sack_blocks_received;
    if (r.begin >= r.end || r.end > nxt_ || r.begin < una_) {
      if (r.end > una_) ++count_.sack_blocks_invalid;  // else merely late
      continue;
    }
    seen[kept++] = r;
    // A block the last ACK had too has been taken already.
    for (const SackRange& old : seen_) {
      if (old.begin < old.end && old.begin >= r.begin && old.end <= r.end) {
        if (old.begin > r.begin) take_range({r.begin, old.begin}, d, now);
        r.begin = old.end;
      }
    }
    if (r.begin < r.end) take_range(r, d, now);
  }
  seen_ = seen;
}

void Sender::take_cumulative(std::uint64_t end, Delivery& d, Picoseconds now) {
  if (end <= una_) return;
  d.acked = end - una_;
  while (!board_.empty() && board_[board_.first()].end() <= end) {
    const Segment& s = board_[board_.first()];
    if (s.state != Segment::State::sacked) segment_delivered(s, d, true, now);
    board_.pop();
  }
  una_ = end;
  progress_at_ = now;
  backoff_ = 0;
  rto_at_ = kNever;
  if (!persist_due_) probe_due_ = false;  // a tail probe that has not left yet is not needed
  if (app_limited_until_ > 0 && delivered_ > app_limited_until_) app_limited_until_ = 0;
}

void Sender::take_rtt(const Acknowledgement& ack, const Delivery& d, Picoseconds now) {
  if (d.first_rtt != kNever) {
    rtt_.sample(d.first_rtt, d.last_rtt, now);
  } else if (d.acked > 0 && ack.timestamps && ack.ts_echo != 0) {
    // RFC 7323 4: a retransmission's round trip is known by its echo.
    const std::uint32_t ticks = timestamp(now) - ack.ts_echo;
    if (ticks > 0 && ticks < 1u << 31) rtt_.sample(microseconds(ticks), microseconds(ticks), now);
  }
}

void Sender::fill_sample(AckSample& s, const Delivery& d, Picoseconds now) const {
  s.now = now;
  s.acked = d.acked;
  s.delivered = d.delivered;
  s.rtt = d.last_rtt;
  s.srtt = rtt_.srtt();
  s.min_rtt = rtt_.min();
  if (d.rated) {
    const Picoseconds interval = std::max(d.sent - d.rate_start, now - d.prior_delivered_at);
    // An interval under the smallest RTT comes from a burst of ACKs and says nothing.
    if (interval.count > 0 && (rtt_.min() == kNever || interval >= rtt_.min())) {
      s.rate_interval = interval;
      s.rate_bytes = delivered_ - d.prior_delivered;
    }
    s.prior_delivered = d.prior_delivered;
    s.app_limited = d.app_limited;
  }
  s.delivered_total = delivered_;
  s.lost_total = lost_total_;
  s.retransmitted_total = retransmitted_;
  s.prior_in_flight = d.prior_in_flight;
  s.in_flight = board_.in_flight();
  s.packets_out = board_.packets();
  s.retransmissions_out = board_.retransmissions_out();
  s.sent_end = nxt_;
  s.acked_end = una_;
  s.cwnd_limited = limited_end_ > d.prior_una;
  s.in_recovery = state_ == State::recovery || state_ == State::loss;
  s.reducing = !owns_window() && (state_ == State::recovery || state_ == State::cwr);
}

// Payload bytes of the stream before `offset`, which lies in the message of that number or in a later one.
std::uint64_t Sender::payload_before(std::uint64_t offset, std::uint64_t message) const {
  for (std::uint64_t n = message; n < first_message_ + messages_.size(); ++n) {
    const Message& m = messages_[n - first_message_];
    if (offset >= m.end) continue;
    return offset - n * FrameHeader::kSize - std::min<std::uint64_t>(offset - m.begin, FrameHeader::kSize);
  }
  return offset - (first_message_ + messages_.size()) * FrameHeader::kSize;
}

std::uint64_t Sender::payload_not_acked() const {
  return payload_before(nxt_, sending_) - payload_before(una_, first_message_);
}

std::uint64_t Sender::lost_bytes() const {
  return control_->traits.counts_payload ? lost_total_ - framing_.lost : lost_total_;
}

// The same in bytes of messages alone, without the framing in front of each.
void Sender::fill_payload(AckSample& s, const Delivery& d) const {
  s.acked_end = payload_before(una_, first_message_);
  s.sent_end = payload_before(nxt_, sending_);
  s.acked = s.acked_end - payload_before(d.prior_una, first_message_);
  s.delivered = d.delivered - d.delivered_framing;
  s.delivered_total = delivered_ - framing_.delivered;
  s.lost_total = lost_bytes();
  s.retransmitted_total = retransmitted_ - framing_.retransmitted;
  s.in_flight = board_.in_flight() - board_.framing_in_flight();
  s.prior_in_flight = d.prior_in_flight - d.prior_framing_in_flight;
  s.ce_delivered = s.marked ? s.delivered : 0;
  if (!d.rated) return;
  s.prior_delivered = d.prior_delivered - d.prior_delivered_framing;
  if (s.rate_interval.count > 0) s.rate_bytes = s.delivered_total - s.prior_delivered;
}

void Sender::on_ack(const Acknowledgement& ack, Picoseconds now) {
  if (ack.end > nxt_) {
    ++count_.acks_out_of_range;
    return;
  }
  if (ack.end < una_) {
    ++count_.acks_stale;
    return;
  }
  if (ack.ece) ++count_.ece_received;
  window_end_ = std::max(window_end_, ack.end + ack.window);
  Delivery d;  // also where nothing is outstanding: a DSACK may still come
  d.prior_una = una_;
  d.prior_in_flight = board_.in_flight();
  d.prior_framing_in_flight = board_.framing_in_flight();
  d.timestamps = ack.timestamps;
  d.ts_echo = ack.ts_echo;
  take_sack(ack, d, now);
  take_cumulative(ack.end, d, now);
  take_rtt(ack, d, now);

  AckSample sample;
  fill_sample(sample, d, now);
  sample.marked = ack.ece;
  sample.ce_delivered = ack.ece ? d.delivered : 0;

  judge_tail_probe(ack, d, sample);
  const std::uint64_t lost_before = lost_total_;
  detect_losses(now);
  advance_state(ack, d, &sample, now);

  const bool progress = d.acked > 0 && lost_total_ == lost_before;
  fill_sample(sample, d, now);
  sample.lost = lost_bytes() - lost_reported_;
  lost_reported_ = lost_bytes();
  if (control_->traits.counts_payload) fill_payload(sample, d);
  if (sample.reducing && (d.delivered > 0 || state_ == State::recovery)) {
    window_.cwnd = std::max<std::uint64_t>(
        prr_.window(d.delivered, board_.in_flight(), window_.ssthresh, window_.mss, progress), window_.mss);
  }
  if (control_->traits.sees_acks && (d.delivered > 0 || d.acked > 0 || sample.lost > 0)) {
    control_->on_ack(sample);
  }
  if (!board_.empty() && rto_at_ == kNever) rto_at_ = now + rtt_.rto(backoff_);
  arm(now);
}

}  // namespace loomnet::tcp
