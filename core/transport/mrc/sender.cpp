// Posting and transmission. Acknowledgements: sender_ack.cpp; loss and probes: sender_loss.cpp.
#include "transport/mrc/sender.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "transport/mrc/dscp.hpp"
#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {
namespace {

Picoseconds base_rtt(const Context& context, const Peer& peer) {
  return peer.ready() ? peer.whole_rtt() : context.options.network_rtt;
}

congestion::QueueDelay estimate_of(const Context& context, const Peer& peer) {
  const MrcOptions& o = context.options;
  return {base_rtt(context, peer), o.network_rtt, o.trim_nack, o.nscc_delay == QueueDelayBy::median};
}

}  // namespace

MessageQueue::Message& MessageQueue::push() {
  if (end_ - begin_ == ring_.size()) {
    std::vector<Message> larger(ring_.empty() ? 8 : ring_.size() * 2);
    for (std::uint64_t n = begin_; n < end_; ++n) larger[n & (larger.size() - 1)] = (*this)[n];
    ring_ = std::move(larger);
  }
  return (*this)[end_++];
}

Sender::Sender(Context& context, Peer& peer, const QpConfig& config, std::uint32_t index, Picoseconds now)
    : context_(context),
      peer_(peer),
      config_{config.local, config.remote, config.source, config.destination, config.flow},
      index_(index),
      evs_(context.options, config.planes, hash_key(config.local, config.source, config.destination)),
      delay_(estimate_of(context, peer)),
      window_psns_(128u * context.options.mpr),
      last_sack_(now),
      last_progress_(now) {
  posted_ = kPsnOrigin + context.options.first_psn;
  window_.start(posted_);
  make_control(config.planes.size());
  on_peer_change(now);
}

void Sender::make_control(std::size_t planes) {
  const MrcOptions& o = context_.options;
  FlowContext flow;
  flow.mss = o.mtu;
  flow.line_rate = o.port_rate.count * planes;
  flow.base_rtt = base_rtt(context_, peer_);
  flow.network_rtt = o.network_rtt;
  flow.rtt_step = o.timestamp_unit();
  flow.initial_window = std::max<std::uint64_t>(bytes_in(o.network_rtt, {flow.line_rate}), o.mtu);
  flow.overhead = nominal_bytes(o.mtu, false) - o.mtu;
  flow.ack_wait = peer_.ack_wait();
  flow.trimming = o.trim_nack;
  flow.seed = o.seed;
  flow.stream = hash_key(config_.local, config_.source, config_.destination);
  limits_ = fresh_limits(flow);
  control_ = context_.congestion(limits_, flow);
}

void Sender::post(const WorkRequest& request, Picoseconds now) {
  const bool was_idle = messages_.empty();
  MessageQueue::Message& m = messages_.push();
  m.request = request;
  const std::uint64_t packets = request.length == 0 ? 1 : (std::uint64_t{request.length} + mss() - 1) / mss();
  m.first = posted_;
  m.last = posted_ + packets - 1;
  m.begin = posted_bytes_;
  posted_bytes_ += request.length;
  m.rqmsn = request.opcode == Opcode::write_with_immediate ? ++wimm_posted_ : 0;
  posted_ += packets;
  context_.count(Count::messages_posted);
  if (was_idle) last_progress_ = last_sack_ = now;
  update_ready(now);
}

std::uint32_t Sender::payload_of(const MessageQueue::Message& m, PsnCount psn) const {
  if (psn < m.last) return static_cast<std::uint32_t>(mss());
  return static_cast<std::uint32_t>(m.request.length - (m.last - m.first) * mss());
}

std::uint32_t Sender::full_charge() const {
  return counts_payload() ? context_.options.mtu : nominal_bytes(context_.options.mtu, false);
}

bool Sender::window_open(std::uint32_t charge) const {
  // One packet is always allowed, since a window of one MTU is less than what a packet is charged;
  // but a window below one packet says when. A control that paces larger windows holds for both.
  if (paced_ && limits_.pacing_rate > 0 && limits_.cwnd >= mss()) return false;
  return window_.inflight() == 0 ? !paced_ : flight() + charge <= limits_.cwnd;
}

void Sender::set_limits(const LimitsSet& set, Picoseconds now) {
  const double before = limits_.pacing_rate;
  loomnet::set_limits(limits_, set);
  pace_at_ = repaced(pace_at_, now, before, limits_.pacing_rate);
  update_ready(now);
}

void Sender::update_ready(Picoseconds now) {
  paced_ = now < pace_at_;
  ready_ = false;
  if (failed_ || !peer_.ready() || peer_.live() == 0) return;
  if (window_.queued() > 0) {
    ready_ = window_open(charged(window_.at(window_.lowest_queued())));
  } else if (window_.next() < posted_ && window_.next() < window_.una() + window_psns_) {
    const auto& m = messages_[sending_];
    const bool immediate = m.request.opcode == Opcode::write_with_immediate;
    if (immediate && window_.next() == m.first && wimm_inflight_ >= context_.options.max_wimm) {
      count_held(Count::wimm_stalled, held_by_wimm_);
      return;
    }
    ready_ = window_open(next_charge());
  } else if (window_.next() < posted_ && window_open(full_charge())) {
    count_held(Count::psn_window_full, held_by_psns_);
  }
  if (ready_) context_.wake = static_cast<PlaneMask>(context_.wake | peer_.live());
}

// Once for each packet. update_ready() is called for many reasons, a controller that states a window among them, and
// finds the same packet held each time.
void Sender::count_held(Count why, PsnCount& last) {
  if (last != window_.next()) context_.count(why);
  last = window_.next();
}

// Of the next new packet; one is posted.
std::uint32_t Sender::next_charge() const {
  const auto& m = messages_[sending_];
  if (counts_payload()) return payload_of(m, window_.next());
  const bool immediate = m.request.opcode == Opcode::write_with_immediate;
  return nominal_bytes(payload_of(m, window_.next()), immediate && window_.next() == m.last);
}

// Whether the window has room for the packet after the one just sent: if not, that one asks for an
// answer (A = 1), as nothing will come to trigger one.
bool Sender::more_follows() const {
  if (window_.queued() > 0) {
    return flight() + charged(window_.at(window_.lowest_queued())) <= limits_.cwnd;
  }
  return window_.next() < posted_ && window_.next() < window_.una() + window_psns_ &&
         wimm_inflight_ < context_.options.max_wimm && flight() + next_charge() <= limits_.cwnd;
}

// The receiver answers by itself after sack_bytes. Where the window is smaller, its answers are asked
// for by quarters of the window: one at its end alone would leave the path idle for a round trip.
bool Sender::asks(std::uint32_t charge) {
  unasked_ += charge;
  const std::uint64_t quarter = limits_.cwnd / 4;
  const bool enough = quarter < context_.options.sack_bytes && unasked_ >= quarter;
  if (!enough && more_follows()) return false;
  unasked_ = 0;
  return true;
}

// Of these planes, those that have less in flight than their share of the window, by weight or the same
// for all: a plane that has lost paths that it needs holds little in flight, however free its port is.
PlaneMask Sender::below_share(PlaneMask among) const {
  if (peer_.plane_count() == 1) return among;
  const bool equal = context_.options.plane_turns == PlaneTurns::equal;
  const auto weight = [&](PlanePort p) -> std::uint64_t { return equal ? evs_.weight_in(p) > 0 : evs_.weight_in(p); };
  std::uint64_t all = 0;
  for (unsigned rest = peer_.live(); rest != 0; rest &= rest - 1) {
    all += weight(static_cast<PlanePort>(std::countr_zero(rest)));
  }
  const std::uint64_t window = limits_.cwnd;
  unsigned mask = 0;
  for (unsigned rest = among; rest != 0; rest &= rest - 1) {
    const auto p = static_cast<PlanePort>(std::countr_zero(rest));
    if (plane_inflight_[p] * all < window * weight(p)) mask |= 1u << p;
  }
  return static_cast<PlaneMask>(mask);
}

void Sender::fly(PsnCount psn, EvIndex ev, Picoseconds now) {
  window_.fly(psn, ev, now);
  plane_inflight_[evs_.value(ev).plane()] += charged(window_.at(psn));
}

void Sender::requeue(PsnCount psn) {
  const Sent& s = window_.at(psn);
  plane_inflight_[evs_.value(s.ev).plane()] -= charged(s);
  window_.requeue(psn);
}

void Sender::note_swap(Picoseconds now) {
  const EvIndex fresh = evs_.take_swapped();
  if (fresh == kNoEv) return;
  context_.count(Count::ev_swapped);
  context_.count(Count::ev_swapped_skipped);
  context_.event(EventKind::ev_swapped, config_.local, evs_.value(fresh).value, now);
}

Sender::Offer Sender::offer(PlanePort port, PlaneMask free, Picoseconds now) {
  if (!ready_ || !(peer_.live() >> port & 1)) return {};
  const auto allowed = static_cast<PlaneMask>((free | 1u << port) & peer_.live());
  const bool again = window_.queued() > 0;
  const PsnCount psn = again ? window_.lowest_queued() : window_.next();
  // Never the path of the copy that was lost or trimmed, unless there is no other at all.
  const EvIndex before = again ? window_.at(psn).ev : kNoEv;
  EvIndex avoid = before;
  if (avoid != kNoEv && !evs_.any_usable(peer_.live(), avoid)) avoid = kNoEv;
  const PlaneMask room = below_share(allowed);
  PlaneMask turn = room;
  bool own_turn = true;
  if (context_.options.plane_turns == PlaneTurns::equal) {
    // No plane sends before the one whose turn it is, and a plane carries its own retransmissions, even
    // by the path that refused the packet.
    turn = peer_.live();
    if (const auto own = static_cast<PlaneMask>(again ? 1u << evs_.value(before).plane() : 0);
        turn & own && evs_.any_usable(own)) {
      turn = own;
      own_turn = false;
      if (!evs_.any_usable(own, avoid)) avoid = kNoEv;
    }
  }
  const int plane = evs_.preferred_plane(turn, avoid);
  note_swap(now);
  if (plane < 0 || !(room & 1u << plane)) return {};
  if (plane != port) return {Offer::Kind::other_plane, nullptr, plane};
  const EvIndex ev = evs_.pick(port, avoid);
  note_swap(now);
  if (ev == kNoEv) return {};
  if (own_turn) evs_.advance_plane(port);

  if (!again) {
    const auto& m = messages_[sending_];
    const bool immediate = m.request.opcode == Opcode::write_with_immediate;
    if (immediate && psn == m.first) ++wimm_inflight_;
    const std::uint32_t payload = payload_of(m, psn);
    window_.append(sending_, nominal_bytes(payload, immediate && psn == m.last), payload);
    if (psn == m.last) ++sending_;
  }
  const std::uint32_t nominal = window_.at(psn).nominal;
  fly(psn, ev, now);
  const bool ask = asks(charged(window_.at(psn)));
  count_sent(limits_, *control_, nominal, now);
  pace_at_ = now;
  if (limits_.pacing_rate > 0) [[unlikely]]
    pace(nominal, now);
  context_.count(Count::data_sent);
  if (again) context_.count(Count::data_retransmitted);
  PacketPtr packet = build(psn, window_.at(psn), again, ask, now);
  update_ready(now);
  return {Offer::Kind::packet, std::move(packet), port};
}

// When the next packet may leave: where the window is below one packet, as if each were a whole one.
void Sender::pace(std::uint32_t nominal, Picoseconds now) {
  const bool below = limits_.cwnd < mss();
  const double gap = static_cast<double>(below ? mss() : nominal) * 8e12 / limits_.pacing_rate;
  pace_at_ = now + Picoseconds{std::llround(gap)};
}

PacketPtr Sender::build(PsnCount psn, const Sent& sent, bool retransmission, bool ask, Picoseconds now) {
  const MrcOptions& o = context_.options;
  const MessageQueue::Message& m = messages_[sent.message];
  const WorkRequest& request = m.request;
  const bool immediate = request.opcode == Opcode::write_with_immediate;
  Op op = Op::write_middle;
  if (m.first == m.last) {
    op = immediate ? Op::write_only_immediate : Op::write_only;
  } else if (psn == m.first) {
    op = Op::write_first;
  } else if (psn == m.last) {
    op = immediate ? Op::write_last_immediate : Op::write_last;
  }
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(op);
  bth.destination_qp = config_.remote;
  bth.ack_request = ask;
  bth.retransmission = retransmission;
  bth.timestamp = true;
  bth.psn = Psn::wrap(psn).raw();

  const EntropyValue ev = evs_.value(sent.ev);
  const std::uint8_t code = !o.trim_nack     ? dscp::kNoTrim
                            : retransmission ? dscp::kTrimmableRetransmission
                                             : dscp::kTrimmable;
  PacketPtr packet = context_.sink->allocate();
  packet->flow = config_.flow;
  packet->message = request.message;
  const std::uint64_t offset = (psn - m.first) * mss();
  describe(packet->attributes, request.attributes, request.framing, offset);
  const std::size_t step = o.identity == StepIdentity::hdr ? kStepHeaderBytes : 0;
  ByteWriter out = begin(*packet, o,
                         {config_.source, config_.destination, &peer_.paths(static_cast<PlanePort>(ev.plane())), ev,
                          code, o.ecn ? Ecn::ect0 : Ecn::not_ect},
                         bth, step);
  if (step > 0) {
    put_step_header(packet->header.data() + kEnvelopeBytes, packet->attributes,
                    psn == m.last && ends_step(request.attributes, request.framing, request.length), retransmission);
  }
  Meth{m.rqmsn, static_cast<std::uint16_t>(sent.message)}.serialize(out);
  Tseth{o.timestamp(now), o.coarse_timestamps}.serialize(out);
  Reth{request.remote_address + offset, request.remote_key, request.length}.serialize(out);
  if (has_immediate(op)) ImmDt{request.immediate}.serialize(out);
  const std::uint32_t length = payload_of(m, psn);
  Payload payload{nullptr, length, 0, PayloadKind::none};
  if (request.local && length > 0) {
    payload.data = request.local + offset;
    payload.kind = PayloadKind::region;
  }
  finish(*packet, out, payload);
  return packet;
}

void Sender::fail(Status status, std::uint64_t culprit, Picoseconds now) {
  if (failed_) return;
  failed_ = true;
  ready_ = false;
  bad_at_ = kNever;
  context_.count(Count::qp_errors);
  context_.event(EventKind::qp_error, config_.local, static_cast<std::uint32_t>(status), now);
  while (!messages_.empty()) {
    const WorkRequest& request = messages_[messages_.begin()].request;
    const bool named = messages_.begin() == culprit;
    const Completion completion{config_.local, named ? status : Status::flushed, request.id, request.length};
    messages_.pop();
    if (!named) context_.count(Count::requests_flushed);
    context_.sink->complete(completion);
  }
}

void Sender::on_peer_change(Picoseconds now) {
  if (peer_.ready() && peer_.whole_rtt() != delay_.base_rtt() && window_.inflight() == 0 && messages_.begin() == 0 &&
      window_.next() == window_.una()) {
    delay_ = estimate_of(context_, peer_);
    make_control(peer_.plane_count());
  }
  control_->on_ports(static_cast<std::size_t>(std::popcount(peer_.live())), peer_.plane_count(), now);
  if (const EvIndex back = evs_.keep_floor(peer_.live()); back != kNoEv) {
    context_.count(Count::ev_floor_returned);
    drop_bad_probe(back);
    context_.event(EventKind::ev_good, config_.local, evs_.value(back).value, now);
  }
  update_ready(now);
}

// Packets under way keep the entropy values of the old paths. When such a packet is lost, no path of
// the new set is marked bad for it.
void Sender::on_paths(std::span<const PlanePaths> planes, PlaneMask same) {
  EvSet fresh(context_.options, planes, hash_key(config_.local, config_.source, config_.destination));
  std::vector<bool> needed(evs_.size());
  const auto each = [&](auto&& visit) { window_.each([&](Sent& s) { visit(s.ev), visit(s.blamed); }); };
  each([&](EvIndex ev) {
    if (ev != kNoEv) needed[ev] = true;
  });
  const std::vector<EvIndex> now_at = fresh.succeed(evs_, same, needed);
  each([&](EvIndex& ev) {
    if (ev != kNoEv) ev = now_at[ev];
  });
  evs_ = std::move(fresh);
  // What was known or asked of the old paths alone is of no use.
  const auto follow = [&](auto& list) {
    std::erase_if(list, [&](auto& of) {
      of.ev = now_at[of.ev];
      return of.ev == kNoEv || evs_.state(of.ev) == EvState::retired;
    });
  };
  follow(path_probes_);
  follow(suspects_);
  follow(readmissions_);
  follow(bad_);
  std::erase_if(bad_, [&](const BadProbe& b) { return evs_.state(b.ev) != EvState::assumed_bad; });
}

bool Sender::deny(EntropyValue value, bool denied, Picoseconds now) {
  const EvIndex ev = evs_.find(value);
  if (ev == kNoEv || !evs_.deny(ev, denied, peer_.live())) return false;
  drop_bad_probe(ev);
  on_peer_change(now);
  return true;
}

}  // namespace loomnet::mrc
