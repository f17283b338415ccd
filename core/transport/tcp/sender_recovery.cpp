// Recovery: tail loss probes, fast recovery, ECN reductions, timeouts, and taking a mistake back.
#include <algorithm>

#include "transport/tcp/delivery.hpp"

namespace loomnet::tcp {

// RFC 8985 7.4: whether the probe repaired a loss that nothing else noticed.
void Sender::judge_tail_probe(const Acknowledgement& ack, const Delivery& d, const AckSample& sample) {
  if (tlp_end_ == 0 || ack.end < tlp_end_) return;
  if (!tlp_retransmission_ || d.tlp_dsack) {
    tlp_end_ = 0;  // new data, or both copies arrived
  } else if (ack.end > tlp_end_) {
    tlp_end_ = 0;
    ++count_.tlp_recoveries;
    if (state_ == State::open) {
      reduce(Congestion::loss, State::cwr, false, &sample, sample.now);
      high_ = una_ - 1;  // nothing is left to repair: the reduction takes effect at once
    }
  } else if (d.acked == 0 && !d.newly_sacked && !ack.with_data) {
    tlp_end_ = 0;  // a pure duplicate ACK: original and probe have both arrived
  }
}

bool Sender::detect_losses(Picoseconds now) {
  const std::uint64_t before = lost_total_;
  const bool repairing = state_ == State::recovery || state_ == State::loss;
  reorder_at_ = rack_.detect(board_, rtt_, repairing, now, [&](SegmentNumber n) {
    lost_total_ += board_[n].length;
    framing_.lost += board_[n].framing;
    ++count_.marked_lost;
  });
  return lost_total_ != before;
}

// Begins an episode. `again`: the window has been reduced for this round trip already, so only what
// is to be repaired changes (RFC 6582 3.2, RFC 3168 6.1.2).
void Sender::reduce(Congestion kind, State state, bool again, const AckSample* sample, Picoseconds now) {
  if (!again) {
    prior_cwnd_ = window_.cwnd;
    prior_ssthresh_ = window_.ssthresh;
  }
  if (!again || state_ == State::cwr) {
    undo_possible_ = kind != Congestion::ecn;
    undo_begin_ = una_;
    // Repairs of the episode before may still be on their way: their ACKs are no sign of a mistake.
    undo_retransmissions_ = board_.retransmissions_out();
    if (undo_retransmissions_ == 0) retransmit_stamp_ = 0;
  }
  if (!again || owns_window()) {
    const std::uint64_t out = control_->traits.counts_payload ? payload_not_acked() : nxt_ - una_;
    const std::uint64_t flight = std::min(out, std::max<std::uint64_t>(window_.cwnd, window_.mss));
    CongestionEvent event;
    event.kind = kind;
    event.now = now;
    event.flight = flight;
    event.ack = sample;
    control_->on_congestion(event);
    prr_.begin(nxt_ - una_);
  }
  high_ = nxt_;
  state_ = state;
}

void Sender::recovered(Picoseconds now) {
  const bool repaired = state_ != State::cwr;
  if (!owns_window() && state_ != State::loss) window_.cwnd = window_.ssthresh;
  state_ = State::open;
  if (repaired) {
    rack_.recovered();
    control_->on_recovered(now);
  }
}

// Nothing that was retransmitted had been lost: the receiver says so by DSACK for every one, or the
// ACK that moves on was caused by an original (its timestamp is older than any retransmission).
bool Sender::mistaken(const Acknowledgement& ack) const {
  if (!undo_possible_) return false;
  if (retransmit_stamp_ == 0) return false;
  if (undo_retransmissions_ == 0) return true;
  return ack.timestamps && ack.ts_echo != 0 && static_cast<std::int32_t>(ack.ts_echo - retransmit_stamp_) < 0;
}

void Sender::undo(Picoseconds now) {
  ++(state_ == State::loss ? count_.spurious_rto : count_.spurious_recoveries);
  board_.unmark_lost();
  if (!owns_window()) {
    window_.cwnd = std::max(window_.cwnd, prior_cwnd_);
    window_.ssthresh = prior_ssthresh_;
  }
  control_->on_undo(now);
  undo_possible_ = false;
  state_ = State::open;
}

void Sender::advance_state(const Acknowledgement& ack, const Delivery& d, const AckSample* sample, Picoseconds now) {
  if (state_ == State::recovery || state_ == State::loss) {
    if ((d.acked > 0 || d.dsack) && mistaken(ack)) {
      undo(now);
    } else if (una_ >= high_) {
      recovered(now);
    }
  } else if (state_ == State::cwr && una_ > high_) {
    recovered(now);
  }
  if (state_ == State::open && d.dsack && mistaken(ack)) undo(now);  // DSACKs that came afterwards

  // Also for what the recovery that has just ended lost beyond its end and repaired already: that
  // is a window's first loss (RFC 6675 5; Linux: tcp_time_to_recover by lost_out).
  if ((state_ == State::open || state_ == State::cwr) && board_.lost_out() > 0) {
    tlp_end_ = 0;
    ++count_.fast_recoveries;
    reduce(Congestion::loss, State::recovery, state_ == State::cwr, sample, now);
  } else if (state_ == State::open && ack.ece && !owns_window()) {
    ++count_.ecn_reductions;
    reduce(Congestion::ecn, State::cwr, false, sample, now);
    cwr_due_ = true;
  }
}

// --- timers --------------------------------------------------------------------------------------

// RFC 8985 7.2: two round trips after the last transmission; a lone segment's ACK may be delayed.
Picoseconds Sender::tail_probe_at(Picoseconds now) const {
  if (!rtt_.known() || (state_ != State::open && state_ != State::cwr) || tlp_end_ != 0 ||
      board_.sacked_packets() > 0 || board_.lost() > 0 || board_.in_flight() == 0) {
    return kNever;
  }
  Picoseconds wait = rtt_.srtt() * 2;
  if (board_.in_flight_packets() == 1) wait += options_.rto_min;
  return std::max(last_sent_ + wait, now);
}

void Sender::arm(Picoseconds now) {
  timer_kind_ = Timer::none;
  timer_ = kNever;
  if (board_.empty()) {
    rto_at_ = reorder_at_ = kNever;
    if (nxt_ < posted_ && !probe_due_ && !peer_allows(nxt_ + next_length())) {
      timer_kind_ = Timer::persist;
      timer_ = now + rtt_.rto(backoff_);
    }
    return;
  }
  timer_kind_ = Timer::rto;
  timer_ = rto_at_;
  if (reorder_at_ != kNever) {
    if (reorder_at_ < timer_) timer_kind_ = Timer::reorder, timer_ = reorder_at_;
  } else if (const Picoseconds probe = tail_probe_at(now); probe < timer_) {
    timer_kind_ = Timer::tlp;
    timer_ = probe;
  }
}

// As Linux counts tcp_retries2: the time that so many doubled timeouts take.
Picoseconds Sender::give_up_after() const {
  Picoseconds sum{};
  for (std::uint32_t i = 0; i <= options_.retries; ++i) sum += rtt_.rto(i);
  return sum;
}

void Sender::timeout(Picoseconds now) {
  ++count_.rto;
  if (board_[board_.first()].state == Segment::State::sacked) {
    ++count_.sack_reneged;
    board_.renege();
    seen_ = {};
  }
  // RFC 5681 3.1: the threshold falls once per window of data, at the first timeout of a segment.
  const bool again = (state_ == State::recovery && una_ < high_) || (state_ == State::loss && backoff_ > 0);
  reduce(Congestion::timeout, State::loss, again, nullptr, now);
  tlp_end_ = 0;
  for (SegmentNumber n = board_.oldest(); n != Scoreboard::kNone;) {
    const SegmentNumber next = board_.next_sent(n);
    // RFC 8985 6.3: what was sent a moment ago is not lost for this.
    if (n == board_.first() || !rack_.recent(board_[n].sent, board_, rtt_, now)) {
      lost_total_ += board_[n].length;
      framing_.lost += board_[n].framing;
      ++count_.marked_lost;
      board_.mark_lost(n);
    }
    n = next;
  }
  if (!owns_window()) window_.cwnd = board_.in_flight() + window_.mss;
  paced_until_ = std::min(paced_until_, now);
}

bool Sender::on_deadline(Picoseconds now) {
  if (tick_at(window_, *control_) <= now) control_->on_tick(now);
  if (now < timer_) return true;
  switch (timer_kind_) {
    case Timer::none:
      break;
    case Timer::persist:
      probe_due_ = persist_due_ = true;
      backoff_ = std::min(backoff_ + 1, options_.retries);
      break;
    case Timer::reorder: {
      ++count_.rack_timeouts;
      if (detect_losses(now) && (state_ == State::open || state_ == State::cwr)) {
        advance_state({.end = una_}, {}, nullptr, now);
        if (!owns_window()) {
          window_.cwnd = prr_.window(0, board_.in_flight(), window_.ssthresh, window_.mss, false);
        }
      }
      break;
    }
    case Timer::tlp:
      ++count_.tlp;
      probe_due_ = true;
      tlp_end_ = nxt_;  // one probe per flight, also while it waits for its turn on the port
      tlp_retransmission_ = false;
      break;
    case Timer::rto: {
      if (now - progress_at_ >= give_up_after()) return false;
      // Where nothing has gone out since the last timeout the port is at fault, not the path.
      if (board_.in_flight() > 0 || board_[board_.first()].state == Segment::State::sacked) {
        timeout(now);
        ++backoff_;
      }
      rto_at_ = now + rtt_.rto(backoff_);
      break;
    }
  }
  arm(now);
  return true;
}

}  // namespace loomnet::tcp
