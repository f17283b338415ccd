// A sender's reading of SACKs and transport acknowledgements: round trips, marks, what has arrived.
#include <algorithm>
#include <bit>

#include "transport/mrc/sender.hpp"
#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {
namespace {

constexpr int kForgetSacks = 64, kForgetWait = 256;  // of the longest waits, forgotten with each answer (ours)

}  // namespace

// Returns the payload bytes that this is the first to acknowledge.
std::uint32_t Sender::acknowledge(PsnCount psn, bool is_trigger, bool retransmission_echo, Picoseconds now) {
  Sent& s = window_.at(psn);
  const EvIndex ev = s.ev;
  const SentState before = window_.acknowledge(psn);
  if (before == SentState::flying) plane_inflight_[evs_.value(ev).plane()] -= charged(s);
  const bool original = before == SentState::queued || (is_trigger && !retransmission_echo && s.copies > 1);
  if (original) std::erase_if(suspects_, [psn](const Suspect& each) { return each.psn == psn; });
  if (s.blamed != kNoEv && original) {
    absolve(s, now);
  } else if (before == SentState::flying) {
    evs_.clear_losses(ev);
  }
  if (is_trigger && evs_.state(ev) != EvState::retired) peer_.data_acknowledged(evs_.value(ev), now);
  return before == SentState::acked ? 0 : s.payload;
}

// Payload bytes before the oldest packet that is not acknowledged in order, and before the next new one.
std::uint64_t Sender::acked_end() const {
  for (std::uint64_t n = messages_.begin(); n < messages_.end(); ++n) {
    const MessageQueue::Message& m = messages_[n];
    if (window_.una() <= m.last) return m.begin + (window_.una() - m.first) * mss();
  }
  return posted_bytes_;
}
std::uint64_t Sender::sent_end() const {
  if (sending_ == messages_.end()) return posted_bytes_;
  const MessageQueue::Message& m = messages_[sending_];
  return m.begin + (window_.next() - m.first) * mss();
}

void Sender::on_sack(const Seth& seth, const CcState& cc, bool retransmission_echo, Picoseconds now) {
  if (failed_) return context_.count(Count::drop_qp_error);
  const PsnCount cack = Psn(seth.cack_psn).unwrap(window_.una() - 1);
  if (cack >= window_.next()) return context_.count(Count::drop_ack_beyond_sent);
  if (window_.una() - 1 - std::min(cack, window_.una() - 1) > 2 * 128ull * 255) {
    return context_.count(Count::drop_ack_stale);
  }
  context_.count(Count::sack_received);
  answered_ = true;
  const std::uint64_t flight_before = flight();
  const std::uint64_t acked_before = counts_payload() ? acked_end() : 0;

  // RTT, before the table forgets the packet that triggered this.
  const bool marked = seth.mark != 0;
  AckSample heard;
  heard.now = now;
  heard.marked = marked;
  Picoseconds delay = delay_.average();
  const PsnCount trigger = cack + static_cast<PsnCount>(std::int64_t{seth.ack_psn_offset});
  const bool known = !seth.probe_reply && window_.contains(trigger);
  Picoseconds trigger_sent{-1};
  EvIndex trigger_ev = kNoEv;
  if (known && window_.at(trigger).state == SentState::flying) {
    const Sent& s = window_.at(trigger);
    const Picoseconds age = now - s.time, unit = context_.options.timestamp_unit();
    if ((s.copies == 1 || (s.copies == 2 && retransmission_echo)) && age < unit * 32'768) {
      const Picoseconds sample = context_.options.since(cc.tx_ts, now);
      // An echo older or younger than the packet itself is not this packet's: SACKs that precede a
      // probe's answer echo the probe.
      if (sample <= age + unit * 2 && age <= sample + unit * 2) {
        heard.rtt = std::max(sample, unit);
        heard.shorter = peer_.sooner(s.nominal);
        heard.delay = delay = delay_.sample(heard.rtt, marked, heard.shorter);
      }
    }
    trigger_sent = s.time;
    trigger_ev = s.ev;
    refusals_take_ -= refusals_take_ / kForgetSacks;
    longest_wait_ = std::max(delay, longest_wait_ - longest_wait_ / kForgetWait);
  }
  if (const EvIndex ev = evs_.find(EntropyValue(seth.entropy)); ev != kNoEv && marked && !seth.probe_reply) {
    if (seth.mark == static_cast<std::uint8_t>(Mark::always_skip)) {
      condemn(ev, true, now);
    } else if (context_.options.ecn_reaction == EcnReaction::path && evs_.skip(ev)) {
      context_.count(Count::ev_skipped);
      context_.count(Count::ev_skipped_marked);
    }
  }

  // Packets that this SACK is the first to acknowledge.
  std::uint64_t delivered_payload = 0;
  bool progress = false;
  const auto take = [&](PsnCount n, bool is_trigger) {
    if (Sent& s = window_.at(n); s.state == SentState::acked) {
      // The original, behind its own retransmission.
      if (is_trigger && !retransmission_echo && s.blamed != kNoEv &&
          s.blamed == evs_.find(EntropyValue(seth.entropy))) {
        absolve(s, now);
      }
      return;
    }
    delivered_payload += acknowledge(n, is_trigger, retransmission_echo, now);
    progress = true;
  };
  if (known) take(trigger, true);
  for (PsnCount n = window_.una(); n <= cack; ++n) take(n, false);
  PsnCount base = cack + static_cast<PsnCount>(std::int64_t{seth.sack_offset});
  std::uint64_t bits = seth.bitmap;
  if (static_cast<std::int64_t>(window_.una() - base) > 0) {
    const PsnCount late = window_.una() - base;
    bits = late < 64 ? bits >> late : 0;
    base = window_.una();
  }
  if (bits && base < window_.next()) {
    const PsnCount room = window_.next() - base;
    const std::uint64_t sent = room < 64 ? ~0ull >> (64 - room) : ~0ull;
    if (bits & ~sent) context_.count(Count::drop_ack_beyond_sent);
    for (std::uint64_t fresh = bits & sent & ~window_.acked_bits(base); fresh; fresh &= fresh - 1) {
      take(base + static_cast<unsigned>(std::countr_zero(fresh)), false);
    }
  } else if (bits) {
    context_.count(Count::drop_ack_beyond_sent);
  }
  if (window_.una() <= cack) window_.advance(cack);
  const bool missing = report_missing(cc, cack);

  const std::uint32_t units = (cc.rcvd_bytes - received_units_) & 0xffffff;
  std::uint64_t received = 0;
  if (units < 1u << 23) {
    received_units_ = cc.rcvd_bytes;
    received = std::uint64_t{units} * 256;
  }
  delivered_ += received;
  delivered_payload_ += delivered_payload;
  if (control_->traits.sees_acks) {
    heard.acked = heard.delivered = received;
    heard.delivered_total = delivered_;
    heard.ce_delivered = marked ? received : 0;
    heard.srtt = delay_.base_rtt() + delay_.average();
    heard.min_rtt = delay_.base_rtt();
    heard.in_flight = flight();
    heard.prior_in_flight = flight_before;
    heard.packets_out = static_cast<std::uint32_t>(window_.next() - window_.una());
    heard.sent_end = window_.next() * mss();
    heard.acked_end = window_.una() * mss();
    heard.cwnd_limited = flight_before + full_charge() > limits_.cwnd;
    heard.penalty = cc.rcv_cwnd_pen;
    heard.restore = cc.restore_cwnd;
    if (counts_payload()) {
      heard.acked_end = acked_end();
      heard.sent_end = sent_end();
      heard.acked = heard.acked_end - acked_before;
      heard.delivered = delivered_payload;
      heard.delivered_total = delivered_payload_;
      heard.ce_delivered = marked ? delivered_payload : 0;
    }
    control_->on_ack(heard);
  }
  if (context_.options.dynamic_mpr && seth.mpr != 0) window_psns_ = 128u * seth.mpr;

  last_sack_ = now;
  if (progress) {
    retries_ = 0;
    last_progress_ = now;
  }
  if (seth.probe_reply) {
    on_probe_answer(seth, cc, missing, now);
  } else {
    tail_unanswered_ = 0;
  }
  infer_losses(trigger_ev, trigger_sent, missing, now);
  complete_arrived();
  update_ready(now);
}

// Whether the receiver holds more packets beyond a hole than it has been heard to tell of: a SACK was
// lost, or another one of this answer is to come. Silence of a packet then says nothing.
bool Sender::report_missing(const CcState& cc, PsnCount cack) const {
  return cack + 1 == window_.una() && cc.ooo > window_.acked_beyond();
}

// Arrived is executed here: a bit is set after its payload is placed, and every PSN up to a
// request's last has arrived before it completes; so completions come in order, and a transport
// ACK only carries errors (ours).
void Sender::complete_arrived() {
  while (!messages_.empty() && messages_[messages_.begin()].last < window_.una()) {
    const WorkRequest& request = messages_[messages_.begin()].request;
    if (request.opcode == Opcode::write_with_immediate) --wimm_inflight_;
    const Completion completion{config_.local, Status::ok, request.id, request.length};
    messages_.pop();
    context_.count(Count::messages_completed);
    context_.sink->complete(completion);
  }
}

void Sender::on_transport_ack(const Aeth& aeth, Picoseconds now) {
  if (failed_) return context_.count(Count::drop_qp_error);
  if (aeth.is_ack()) return;  // arrival is told by SACKs
  context_.count(Count::nak_received);
  Status status = Status::remote_operational;
  if (aeth.syndrome == Aeth::kNakInvalidRequest) status = Status::remote_invalid_request;
  if (aeth.syndrome == Aeth::kNakRemoteAccess) status = Status::remote_access_error;
  std::uint64_t culprit = messages_.begin();
  for (std::uint64_t n = messages_.begin(); n < sending_ + 1 && n < messages_.end(); ++n) {
    if ((n & 0xffff) == (aeth.msn & 0xffff)) culprit = n;
  }
  fail(status, culprit, now);
}

}  // namespace loomnet::mrc
