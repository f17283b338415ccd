// What a sender concludes from silence and from refusals: loss, blame, probes, timeouts.
// OCP MRC 1.0.
#include <algorithm>

#include "transport/mrc/dscp.hpp"
#include "transport/mrc/sender.hpp"
#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::size_t kTailPaths = 8;    // probed at once (ours)
constexpr std::size_t kSuspects = 64;
constexpr std::uint32_t kDrainsPerSwitch = 2;  // of a queue of 1.5 BDP by the three quarters that are left
constexpr std::uint32_t kMostPayload = 4096;  // bytes: shorter packets leave more headers for a queue
constexpr int kForget = 16;  // of the longest wait for a refusal, forgotten with each answer (ours)
constexpr std::size_t kProbesKept = 32;  // a late answer to an earlier probe is one as well (ours)

}  // namespace

Picoseconds Sender::rtt() const { return peer_.ready() ? peer_.whole_rtt() : context_.options.network_rtt; }

// Through the queues that packets have found of late.
Picoseconds Sender::loaded_rtt() const { return delay_.base_rtt() + std::max(delay_.average(), Picoseconds{}); }

// For how long silence of a packet says nothing (ours): three times as long as refusals took of late,
// since headers of trimmed packets wait in a queue of their own, which packets behind them overtake;
// and, where packets have queued, twice as long as one did beyond the round trip, since those of other
// paths overtake it.
Picoseconds Sender::patience() const {
  const Picoseconds queued = longest_wait_ * 4 > rtt() ? rtt() + longest_wait_ * 2 : Picoseconds{};
  return std::max(refusals_take_ * 3, queued);
}

// Whether silence of a packet, for however long, may have another cause than its loss.
bool Sender::in_doubt() const { return refusals_take_ * 2 >= rtt() || longest_wait_ * 2 >= rtt(); }

Picoseconds Sender::rto() const {
  const MrcOptions& o = context_.options;
  // A queue drains in one BDP of its port, that is in one network RTT.
  // Where packets are refused, or no answer has shown yet that they are not, the header of one may
  // wait for as long as a full control queue takes.
  const bool refused = refusals_take_ > rtt() || !answered_;
  const std::uint32_t drains = std::max(o.rto_drains, peer_.switches() * kDrainsPerSwitch) +
                               (refused ? o.rto_refused_drains * kMostPayload / o.mtu : 0);
  const Picoseconds base = std::max(o.rto, rtt() + o.network_rtt * drains);
  if (retries_ < o.retries_linear) return base;
  const unsigned doublings = std::min(retries_ - o.retries_linear + 1, 30u);
  if (base.count > (o.rto_max.count >> doublings)) return std::max(base, o.rto_max);
  return base * (1ll << doublings);
}

void Sender::on_nack(const Neth& neth, Picoseconds now) {
  if (failed_) return context_.count(Count::drop_qp_error);
  const auto reason = static_cast<NackReason>(neth.reason);
  if (reason == NackReason::unexpected_event) {
    context_.count(Count::nack_received);
    return fail(Status::remote_operational, now);
  }
  const PsnCount psn = Psn(neth.nack_psn).unwrap(window_.una());
  if (psn >= window_.next()) return context_.count(Count::drop_ack_beyond_sent);
  const EvIndex ev = evs_.find(EntropyValue(neth.entropy));
  bool charge = false;
  switch (reason) {
    case NackReason::trimmed:
      if (ev != kNoEv && evs_.skip(ev)) context_.count(Count::ev_skipped);
      charge = true;
      break;
    case NackReason::trimmed_last_hop:
      charge = true;
      break;
    case NackReason::no_bitmap:
    case NackReason::no_packet_buffer:
    case NackReason::no_resource:
    case NackReason::psn_out_of_window:
      break;
    default:
      return context_.count(Count::drop_bad_reason);
  }
  context_.count(Count::nack_received);
  answered_ = true;
  const bool suspected = charge && ev != kNoEv && acquit(psn, ev);
  if (psn < window_.una()) return context_.count(Count::drop_ack_stale);
  Sent& s = window_.at(psn);
  // A refusal of a copy that was declared lost: its path has delivered what was left of it.
  const bool blamed = charge && s.blamed != kNoEv && s.blamed == ev;
  if (blamed) absolve(s, now);
  // Only the latest copy's refusal asks for another one and costs window. Copies on one path are
  // told apart by the time that the refusal echoes.
  const bool latest =
      s.state == SentState::flying && (ev == kNoEv || s.ev == ev) && neth.tx_ts == context_.options.timestamp(s.time);
  // One that is repeated when the packet has been sent again tells nothing of how long they take.
  if (latest || blamed || suspected) {
    refusals_take_ = std::max(context_.options.since(neth.tx_ts, now), refusals_take_ - refusals_take_ / kForget);
  }
  if (latest) requeue(psn);
  if (latest && charge) charge_refusal(s, now);
  last_sack_ = now;
  update_ready(now);
}

void Sender::tell(Congestion kind, const Sent& packet, Picoseconds now) {
  CongestionEvent event;
  event.kind = kind;
  event.now = now;
  event.bytes = charged(packet);
  event.flight = flight();
  event.sent = packet.time;
  control_->on_congestion(event);
}

// The estimate of the queues follows refusals only where the window does (ours).
void Sender::charge_refusal(const Sent& packet, Picoseconds now) {
  if (!control_->traits.sees_acks) return;
  delay_.refused();
  tell(Congestion::refused, packet, now);
}

void Sender::declare_lost(PsnCount psn, Count why, Picoseconds now) {
  const EvIndex ev = window_.at(psn).ev;
  const Picoseconds sent = window_.at(psn).time;
  requeue(psn);
  context_.count(why);
  // A plane known to be down is no evidence against its paths.
  if (evs_.state(ev) == EvState::retired || !(peer_.live() >> evs_.value(ev).plane() & 1)) return;
  // Where none but answers to packets before it came, it may be answers that are lost.
  const bool deaf = why == Count::lost_rto && last_sack_ <= sent + loaded_rtt() * 2 &&
                    context_.options.loss_infer != LossInference::rto_only;
  if (deaf && std::any_of(suspects_.begin(), suspects_.end(), [ev](const Suspect& s) { return s.ev == ev; })) {
    return;
  }
  // The packet may wait in a queue, or its refusal be lost; an answered probe has told.
  const bool told = why == Count::lost_probe || !(in_doubt() || deaf);
  if (told || suspects_.size() >= kSuspects) return convict(psn, ev, now);
  suspect(psn, ev, deaf, now);
}

void Sender::suspect(PsnCount psn, EvIndex ev, bool deaf, Picoseconds now) {
  const auto asked = std::find_if(path_probes_.begin(), path_probes_.end(),
                                  [&](const PathProbe& p) { return p.ev == ev && p.sent == now; });
  std::uint16_t id = 0;
  if (asked != path_probes_.end()) {
    id = asked->id;
  } else {
    probe_path(ev, now);
    id = next_probe_id_;
  }
  suspects_.push_back({psn, ev, id, deaf, now + rto()});
}

void Sender::convict(PsnCount psn, EvIndex ev, Picoseconds now) {
  peer_.data_lost(evs_.value(ev));
  condemn(ev, false, now);
  if (evs_.state(ev) != EvState::assumed_bad || !window_.contains(psn)) return;
  if (Sent& s = window_.at(psn); s.state != SentState::acked) s.blamed = ev;
}

// Of those that `test` picks.
template <typename Test>
void Sender::convict_all(Test&& test, Picoseconds now) {
  for (std::size_t i = 0; i < suspects_.size();) {
    if (!test(suspects_[i])) {
      ++i;
      continue;
    }
    const Suspect s = suspects_[i];
    suspects_.erase(suspects_.begin() + static_cast<long>(i));
    convict(s.psn, s.ev, now);
  }
}

// The copy that the path was suspected of has arrived, whole or trimmed.
bool Sender::acquit(PsnCount psn, EvIndex ev) {
  const auto count = std::erase_if(suspects_, [&](const Suspect& s) { return s.psn == psn && s.ev == ev; });
  if (count > 0) context_.count(Count::spurious_loss);
  return count > 0;
}

void Sender::condemn(EvIndex ev, bool at_once, Picoseconds now) {
  const auto last =
      std::find_if(readmissions_.begin(), readmissions_.end(), [ev](const Readmission& r) { return r.ev == ev; });
  const MrcOptions& o = context_.options;
  if (last != readmissions_.end() && now - last->at > o.probe_cap * o.readmit_forget_caps) {
    evs_.forgive(ev);
    readmissions_.erase(last);
  }
  const EvChange change = evs_.condemn(ev, peer_.live(), at_once);
  if (!change.condemned) return;
  context_.count(Count::ev_condemned);
  context_.event(EventKind::ev_assumed_bad, config_.local, evs_.value(ev).value, now);
  if (change.swapped_in != kNoEv) {
    context_.count(Count::ev_swapped);
    context_.event(EventKind::ev_swapped, config_.local, evs_.value(change.swapped_in).value, now);
  }
  if (change.returned != kNoEv) {
    context_.count(Count::ev_floor_returned);
    context_.event(EventKind::ev_good, config_.local, evs_.value(change.returned).value, now);
    drop_bad_probe(change.returned);
    if (change.returned == ev) return;
  }
  const Picoseconds start = rtt() * context_.options.probe_start_rtts;
  bad_.push_back({ev, 0, 0, false, now + start, start});
  bad_at_ = std::min(bad_at_, now + start);
}

// The copy declared lost has arrived after all, whole or trimmed: its path did nothing wrong.
void Sender::absolve(Sent& sent, Picoseconds now) {
  context_.count(Count::spurious_loss);
  if (evs_.state(sent.blamed) == EvState::assumed_bad) evs_.take_back_failure(sent.blamed);
  readmit(sent.blamed, false, now);
  sent.blamed = kNoEv;
}

void Sender::readmit(EvIndex ev, bool marked, Picoseconds now) {
  if (evs_.state(ev) != EvState::assumed_bad) return;
  evs_.readmit(ev, marked);
  drop_bad_probe(ev);
  std::erase_if(readmissions_, [ev](const Readmission& r) { return r.ev == ev; });
  readmissions_.push_back({ev, now});
  context_.count(Count::ev_readmitted);
  context_.event(EventKind::ev_good, config_.local, evs_.value(ev).value, now);
}

std::uint32_t Sender::answers_needed(EvIndex ev) const {
  const MrcOptions& o = context_.options;
  const unsigned failures = evs_.failures(ev);
  if (failures <= 1) return o.readmit_answers;
  const std::uint64_t doubled = std::uint64_t{o.readmit_answers_again} << std::min(failures - 2, 16u);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(doubled, o.readmit_answers_most));
}

void Sender::drop_bad_probe(EvIndex ev) {
  std::erase_if(bad_, [ev](const BadProbe& b) { return b.ev == ev; });
  bad_at_ = kNever;
  for (const BadProbe& b : bad_) bad_at_ = std::min(bad_at_, b.at);
}

// `missing`: the receiver holds packets that no SACK has told of, so silence may be theirs.
void Sender::infer_losses(EvIndex acked_ev, Picoseconds acked_sent, bool missing, Picoseconds now) {
  const MrcOptions& o = context_.options;
  switch (o.loss_infer) {
    case LossInference::rto_only:
      return;
    case LossInference::sleek: {
      // Never more than three quarters of the PSN window, which would run dry before the loss is found.
      const std::uint64_t packet = nominal_bytes(o.mtu, false);
      const std::uint64_t window = counts_payload() ? limits_.cwnd / mss() * packet : limits_.cwnd;
      const std::uint64_t threshold =
          std::min(std::max<std::uint64_t>(o.sleek_packets * packet, std::min(window + window / 2, limits_.cwnd_most)),
                   window_psns_ * packet / 4 * 3);
      if (missing && window_.infers(threshold)) return ask_again(now);
      while (window_.infers(threshold) && window_.at(window_.oldest_flying()).time + patience() <= now) {
        declare_lost(window_.oldest_flying(), Count::lost_inferred, now);
      }
      return;
    }
    case LossInference::same_ev:
      if (acked_ev == kNoEv) return;
      return lost_on_path(acked_ev, acked_sent, missing, Count::lost_inferred, now);
  }
}

// Packets of a path come in order: what was sent on it before a packet that is known to have arrived,
// and has not been told of, is gone.
void Sender::lost_on_path(EvIndex ev, Picoseconds before, bool missing, Count why, Picoseconds now) {
  // Found first, declared after: the list must not change under the walk.
  std::array<PsnCount, 64> found;
  std::size_t count = 0;
  window_.each_flying([&](PsnCount n, const Sent& s) {
    if (s.time >= before || s.time + patience() > now || count == found.size()) return false;
    if (s.ev == ev) found[count++] = n;
    return true;
  });
  if (count > 0 && missing) return ask_again(now);
  for (std::size_t i = 0; i < count; ++i) declare_lost(found[i], why, now);
}

// Has the receiver tell again all that it holds.
void Sender::ask_again(Picoseconds now) {
  if (now - asked_again_ < loaded_rtt()) return;
  const int plane = evs_.preferred_plane(peer_.live());
  const EvIndex ev = plane < 0 ? kNoEv : evs_.pick(static_cast<PlanePort>(plane));
  if (ev == kNoEv) return;
  evs_.advance_plane(static_cast<PlanePort>(plane));
  asked_again_ = now;
  probe_path(ev, now);
}

void Sender::on_probe_answer(const Seth& seth, const CcState& cc, bool missing, Picoseconds now) {
  const auto id = static_cast<std::uint16_t>(seth.ack_psn_offset);
  const MrcOptions& o = context_.options;
  const auto asked =
      std::find_if(path_probes_.begin(), path_probes_.end(), [id](const PathProbe& p) { return p.id == id; });
  if (asked != path_probes_.end()) {
    const PathProbe probe = *asked;
    path_probes_.erase(asked);
    context_.count(Count::probe_answered);
    tail_unanswered_ = 0;
    const Picoseconds sample = std::max(o.since(cc.tx_ts, now), o.timestamp_unit());
    // A refusal of what was trimmed has gone ahead of the probe, unless control packets waited.
    if (o.loss_infer != LossInference::rto_only && sample - peer_.base_rtt() < delay_.target()) {
      lost_on_path(probe.ev, probe.sent, missing, Count::lost_probe, now);
    }
    // The path has delivered a probe, and its answer would have told of the packet.
    std::erase_if(suspects_, [&](const Suspect& s) { return s.probe == id && s.deaf && window_.acknowledged(s.psn); });
    convict_all([id](const Suspect& s) { return s.probe == id; }, now);
    return;
  }
  for (BadProbe& b : bad_) {
    if (!b.waiting || b.id != id) continue;
    context_.count(Count::probe_answered);
    b.waiting = false;
    b.interval = rtt() * o.probe_start_rtts;
    if (++b.answers >= answers_needed(b.ev)) return readmit(b.ev, seth.mark != 0, now);
    b.at = now + b.interval;
    bad_at_ = std::min(bad_at_, b.at);
    return;
  }
  context_.count(Count::drop_unasked_answer);
}

void Sender::send_reliability_probe(EvIndex ev, std::uint16_t id) {
  const EntropyValue value = evs_.value(ev);
  Control c;
  c.kind = Op::reliability_probe;
  c.owner = index_;
  c.id = id;
  c.fixed_path = true;
  c.uplink = value.uplink();
  context_.push_probe(static_cast<PlanePort>(value.plane()), c);
}

void Sender::probe_bad_evs(Picoseconds now) {
  const MrcOptions& o = context_.options;
  const Picoseconds timeout = std::max(o.probe_timeout, rtt() * 4);
  bad_at_ = kNever;
  for (BadProbe& b : bad_) {
    if (b.at <= now) {
      if (b.waiting) {  // unanswered
        b.answers = 0;
        b.interval = std::min(b.interval * 2, std::max(o.probe_cap, b.interval));
      }
      b.waiting = false;
      if (peer_.live() >> evs_.value(b.ev).plane() & 1) {
        b.id = ++next_probe_id_;
        b.waiting = true;
        send_reliability_probe(b.ev, b.id);
      }
      b.at = now + std::max(b.interval, timeout);
    }
    bad_at_ = std::min(bad_at_, b.at);
  }
}

// No SACK for RTT + target (nothing left to send) or 3 RTT (more waits).
Picoseconds Sender::tail_at() const {
  if (!window_.any_flying() || context_.options.loss_infer == LossInference::rto_only) return kNever;
  const bool waiting = window_.queued() > 0 || window_.next() < posted_;
  const Picoseconds quiet = waiting ? loaded_rtt() * 3 : loaded_rtt() + delay_.target();
  const Picoseconds since = std::max({last_sack_, window_.at(window_.oldest_flying()).time, tail_sent_});
  return since + quiet * (1ll << std::min<unsigned>(tail_unanswered_, 4));
}

// One probe on each path of the packets that have been under way for longest: an answer tells of its
// own path alone.
void Sender::probe_tail(Picoseconds now) {
  if (tail_unanswered_ < 255) ++tail_unanswered_;
  tail_sent_ = now;
  std::array<EvIndex, kTailPaths> paths;
  std::size_t count = 0;
  window_.each_flying([&](PsnCount, const Sent& s) {
    const auto end = paths.begin() + static_cast<long>(count);
    if (std::find(paths.begin(), end, s.ev) == end && evs_.state(s.ev) != EvState::retired &&
        peer_.live() >> evs_.value(s.ev).plane() & 1) {
      paths[count++] = s.ev;
    }
    return count < paths.size();
  });
  for (std::size_t i = 0; i < count; ++i) probe_path(paths[i], now);
  // The path of the oldest packet is the likeliest one to lose the probe as well: it gets two (ours).
  if (count > 0) probe_path(paths[0], now);
}

void Sender::probe_path(EvIndex ev, Picoseconds now) {
  if (path_probes_.size() >= kProbesKept) path_probes_.erase(path_probes_.begin());
  path_probes_.push_back({ev, ++next_probe_id_, now});
  send_reliability_probe(ev, next_probe_id_);
}

void Sender::retry_timeout(Picoseconds now) {
  const MrcOptions& o = context_.options;
  const Picoseconds interval = rto();
  const PsnCount oldest = window_.oldest_flying();
  // The counter is shared by the QP and counts rounds: packets of one burst expire together.
  if (window_.at(oldest).time >= last_rto_) {
    last_rto_ = now;
    ++retries_;
    context_.event(EventKind::rto, config_.local, Psn::wrap(oldest).raw(), now, now - window_.at(oldest).time);
    if (o.retries_exponential < 25 && retries_ > o.retries_linear + o.retries_exponential) {
      return fail(Status::retry_exceeded, now);
    }
  }
  window_.oldest_while([&](const Sent& s) { return s.time + interval <= now; },
                       [&](PsnCount n) {
                         tell(Congestion::timeout, window_.at(n), now);
                         declare_lost(n, Count::lost_rto, now);
                       });
}

void Sender::on_deadline(Picoseconds now) {
  if (failed_) return;
  const MrcOptions& o = context_.options;
  if (outstanding() && o.peer_timeout.count > 0 && now - last_progress_ >= o.peer_timeout) {
    return fail(Status::retry_exceeded, now);
  }
  if (tick_at(limits_, *control_) <= now) control_->on_tick(now);
  if (bad_at_ <= now) probe_bad_evs(now);
  if (window_.any_flying() && window_.at(window_.oldest_flying()).time + rto() <= now) {
    retry_timeout(now);
    if (failed_) return;
  }
  if (tail_at() <= now) probe_tail(now);
  convict_all([now](const Suspect& s) { return s.until <= now; }, now);
  update_ready(now);
}

Picoseconds Sender::next_deadline() const {
  if (failed_) return kNever;
  Picoseconds at = std::min(bad_at_, tick_at(limits_, *control_));
  if (!outstanding()) return at;
  if (context_.options.peer_timeout.count > 0) {
    at = std::min(at, last_progress_ + context_.options.peer_timeout);
  }
  if (paced_) at = std::min(at, pace_at_);
  for (const Suspect& s : suspects_) at = std::min(at, s.until);
  if (window_.any_flying()) {
    at = std::min({at, window_.at(window_.oldest_flying()).time + rto(), tail_at()});
  }
  return at;
}

}  // namespace loomnet::mrc
