// Port status, EV probes and reverse paths of one peer; see peer.hpp.
#include "transport/mrc/peer.hpp"

#include <algorithm>
#include <utility>

#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::uint64_t kPeerPurpose = 0x5045, kTurnPurpose = 0x5446;
// Headers of a data packet and a SACK, less an EV probe and its answer.
constexpr std::uint32_t kMoreThanProbe = (142 - 134) + (154 - 134);

PlaneMask bit(PlanePort plane) { return static_cast<PlaneMask>(1u << plane); }

}  // namespace

Peer::Peer(Context& context, std::uint32_t index, const QpConfig& config, Picoseconds now)
    : context_(context),
      index_(index),
      host_(config.destination),
      self_(config.source),
      planes_(config.planes),
      random_(context.options.seed, std::uint64_t{config.source} << 32 | config.destination, kPeerPurpose) {
  const MrcOptions& o = context_.options;
  // Control packets go by all planes in turn, from another one for each pair of hosts: if all pairs
  // began with plane 0, that plane would carry the first answer of each, and every answer of short jobs.
  RandomStream first(o.seed, std::uint64_t{config.source} << 32 | config.destination, kTurnPurpose);
  const auto planes = static_cast<std::uint32_t>(std::max<std::size_t>(planes_.size(), 1));
  control_turn_ = static_cast<std::uint8_t>(first.below(planes));
  refresh_turn_ = static_cast<std::uint8_t>(first.below(planes));
  take_paths();
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (usable_ >> p & 1) reverse_[p].uplink = random_uplink(p);
  }
  base_rtt_ = o.base_rtt.count > 0 ? o.base_rtt : o.network_rtt;
  update_live();
  if (o.base_rtt.count == 0) {
    measured_ = false;
    base_rtt_ = kNever;
    measure(now);
  }
  // A peer that was not there when a port went down has not heard of it.
  if (usable_ & ~context_.own_up) announce_ports(now);
}

// What follows from the paths alone: which planes have one, and how long they are.
void Peer::take_paths() {
  usable_ = 0;
  switches_ = 0;
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    name_plane(planes_[p], p);
    if (planes_[p].uplinks.empty()) continue;
    usable_ |= bit(p);
    switches_ = std::max<std::uint32_t>(switches_, planes_[p].row.count);
  }
  const std::uint32_t links = usable_ ? switches_ + 1 : 0;
  path_ps_per_byte_ = static_cast<double>(links) * 8e12 / static_cast<double>(context_.options.port_rate.count);
}

PlaneMask Peer::status_mask() const {
  unsigned mask = context_.own_up >> planes_.size() << planes_.size();  // ports that lead nowhere here
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (context_.own_up >> p & 1) mask |= 1u << planes_[p].plane;
  }
  return static_cast<PlaneMask>(mask);
}

void Peer::set_extra() {
  extra_ = {static_cast<std::int64_t>(path_ps_per_byte_ * (context_.options.mtu + kMoreThanProbe))};
}

void Peer::on_paths(std::span<const PlanePaths> planes, Picoseconds now) {
  PlaneMask moved = 0;
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (planes_[p] == planes[p]) continue;
    moved |= bit(p);
    planes_[p] = planes[p];
  }
  take_paths();
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (!(moved >> p & 1)) continue;
    recovery_[p].active = false;
    refresh_[p].waiting = false;
    reverse_[p] = {};
    if (usable_ >> p & 1) reverse_[p].uplink = random_uplink(p);
  }
  update_live();
  if (context_.options.base_rtt.count > 0) return;
  // Data goes on by the old RTT until the new paths have answered.
  if (measured_ && extra_.count > 0) set_extra();
  stale_rtt_ = measured_;
  measure_answers_ = measure_timeouts_ = 0;
  measure(now);
}

Picoseconds Peer::ack_wait() const {
  // A row of uSIDs names the host behind the switches, too: as many as links.
  const double links = switches_, bits = 8.0 * nominal_bytes(context_.options.mtu, false);
  return {static_cast<std::int64_t>(links * bits * 1e12 / static_cast<double>(context_.options.port_rate.count))};
}

Picoseconds Peer::sooner(std::uint32_t nominal) const {
  const std::uint32_t whole = nominal_bytes(context_.options.mtu, false);
  if (nominal >= whole) return {};
  return {static_cast<std::int64_t>(path_ps_per_byte_ * (whole - nominal))};
}

std::uint16_t Peer::random_uplink(PlanePort plane) {
  const auto& uplinks = planes_[plane].uplinks;
  return uplinks[random_.below(static_cast<std::uint32_t>(uplinks.size()))];
}

Picoseconds Peer::probe_timeout() const {
  const Picoseconds rtt = measured_ ? base_rtt_ : context_.options.network_rtt;
  return std::max(context_.options.probe_timeout, rtt * 4);
}

std::uint16_t Peer::send_probe(PlanePort plane, std::uint16_t uplink) {
  Control c;
  c.kind = Op::endpoint_request;
  c.code = static_cast<std::uint8_t>(EndpointOp::ev_probe);
  c.owner = index_;
  c.id = ++next_probe_id_;
  c.uplink = uplink;
  c.fixed_path = true;
  context_.push_probe(plane, c);
  return c.id;
}

// One probe per plane and round trip, until enough are answered: all of them at once, from each of
// many peers, would fill the queue before a receiver and drown one another.
void Peer::measure(Picoseconds now) {
  measure_first_ = static_cast<std::uint16_t>(next_probe_id_ + 1);
  measure_sent_ = 0;
  measure_until_ = now + probe_timeout();
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (!(live_ >> p & 1) || measure_sent_ + measure_answers_ >= context_.options.rtt_probes) continue;
    send_probe(p, random_uplink(p));
    ++measure_sent_;
  }
  measure_missing_ = measure_sent_;
}

// Data may leave as soon as one round is answered; the others make the least RTT more certain.
void Peer::next_round(Picoseconds now) {
  const MrcOptions& o = context_.options;
  const bool given_up = measure_timeouts_ >= o.rtt_probe_rounds;
  if (!measured_ && (measure_answers_ > 0 || given_up)) {
    if (measure_answers_ == 0) {
      base_rtt_ = o.network_rtt;
    } else {
      set_extra();
    }
    measured_ = changed = true;
  }
  measure_until_ = kNever;
  measure_missing_ = 0;
  if (measure_answers_ < o.rtt_probes && !given_up) measure(now);
}

void Peer::update_live() {
  PlaneMask live = static_cast<PlaneMask>(usable_ & context_.own_up & peer_up_);
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (recovery_[p].active) live = static_cast<PlaneMask>(live & ~bit(p));
  }
  if (live == live_) return;
  live_ = live;
  changed = true;
}

int Peer::control_plane() {
  // Healthy planes first, then live ones, then any port with carrier.
  PlaneMask healthy = 0;
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (live_ >> p & 1 && reverse_[p].misses < context_.options.reverse_misses) healthy |= bit(p);
  }
  PlaneMask from = healthy ? healthy : live_;
  if (!from) from = static_cast<PlaneMask>(usable_ & context_.own_up & peer_up_);
  if (!from) from = static_cast<PlaneMask>(usable_ & context_.own_up);
  if (!from) return -1;
  for (std::size_t k = 0; k < planes_.size(); ++k) {
    const auto p = static_cast<PlanePort>((control_turn_ + k) % planes_.size());
    if (!(from >> p & 1)) continue;
    control_turn_ = static_cast<std::uint8_t>((p + 1) % planes_.size());
    return p;
  }
  return -1;
}

void Peer::data_acknowledged(EntropyValue ev, Picoseconds now) {
  reverse_[ev.plane()] = {static_cast<std::uint16_t>(ev.uplink()), 0, true};
  last_acknowledged_ = now;
}

void Peer::data_lost(EntropyValue ev) {
  const auto plane = static_cast<PlanePort>(ev.plane());
  if (reverse_[plane].uplink == ev.uplink()) miss(plane);
}

// The value in use for answers may be dead: another is as good a guess.
void Peer::miss(PlanePort plane) {
  Reverse& r = reverse_[plane];
  if (r.misses < 255) ++r.misses;
  r.uplink = random_uplink(plane);
  r.proven = false;
}

void Peer::data_received(EntropyValue ev, bool repeated, Picoseconds now) {
  last_inbound_ = now;
  if (ev.plane() < planes_.size() && (repeated || !reverse_[ev.plane()].proven)) [[unlikely]] {
    follow(ev);
  }
  if (refresh_at_ == kNever && measured_) {
    refresh_at_ = next_refresh(now);
  }
}

// Until a probe has found a path, or when answers seem to be lost, they go the way that data comes
// (ours): it is known to deliver, if only in the other direction.
void Peer::follow(EntropyValue ev) {
  Reverse& r = reverse_[ev.plane()];
  r.proven = false;
  if (leads_back(ev)) r.uplink = static_cast<std::uint16_t>(ev.uplink());
}

bool Peer::leads_back(EntropyValue ev) const {
  if (ev.plane() >= planes_.size() || !(live_ >> ev.plane() & 1)) return false;
  const auto& uplinks = planes_[ev.plane()].uplinks;
  if (ev.uplink() < uplinks.size() && uplinks[ev.uplink()] == ev.uplink()) return true;  // the usual list
  return std::find(uplinks.begin(), uplinks.end(), ev.uplink()) != uplinks.end();
}

void Peer::start_recovery(PlanePort plane, Picoseconds now) {
  Recovery& r = recovery_[plane];
  r.active = true;
  r.answers = 0;
  r.interval = probe_timeout();
  r.id = send_probe(plane, random_uplink(plane));
  r.at = now + r.interval;
}

void Peer::on_own_port(PlanePort plane, bool up, Picoseconds now) {
  if (plane >= planes_.size() || !(usable_ >> plane & 1)) return;
  if (up && peer_up_ >> plane & 1) {
    start_recovery(plane, now);
  } else {
    recovery_[plane].active = false;
  }
  reverse_[plane].misses = 0;
  update_live();
  announce_ports(now);
}

void Peer::announce_ports(Picoseconds now) {
  ++status_id_;
  status_interval_ = context_.options.port_status_start.count > 0
                         ? context_.options.port_status_start
                         : (measured_ ? base_rtt_ : context_.options.network_rtt) * 4;
  send_status(now);
}

void Peer::send_status(Picoseconds now) {
  Control c;
  c.kind = Op::endpoint_request;
  c.code = static_cast<std::uint8_t>(EndpointOp::port_status_update);
  c.owner = index_;
  c.id = status_id_;
  PlaneMask on = live_;
  if (!on) on = static_cast<PlaneMask>(usable_ & context_.own_up);
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (on >> p & 1) context_.push_control(p, c);
  }
  status_at_ = now + status_interval_;
  status_interval_ = std::min(status_interval_ * 2, std::max(context_.options.port_status_cap, status_interval_));
}

void Peer::on_request(PlanePort plane, EntropyValue ev, const Bth& bth, const Erth& request, Picoseconds now) {
  Control answer;
  answer.kind = Op::endpoint_response;
  answer.owner = index_;
  answer.code = request.op;
  answer.id = static_cast<std::uint16_t>(bth.psn);
  answer.tx_ts = request.stamp.tx_ts;
  if (request.op == static_cast<std::uint8_t>(EndpointOp::ev_probe)) {
    // Answered on the way it came, so that an answer vouches for both directions (ours).
    const auto& uplinks = planes_[plane].uplinks;
    answer.fixed_path = std::find(uplinks.begin(), uplinks.end(), ev.uplink()) != uplinks.end();
    answer.uplink = ev.uplink();
    context_.count(Count::endpoint_answered);
    return context_.push_control(plane, answer);
  }
  if (request.op != static_cast<std::uint8_t>(EndpointOp::port_status_update)) {
    return context_.count(Count::drop_bad_endpoint_op);
  }
  if (request.stamp.format != kFormatTimestamp) return context_.count(Count::drop_bad_endpoint_op);
  const bool newer = !accepted_any_ || static_cast<std::int16_t>(answer.id - accepted_id_) > 0;
  if (newer) {
    accepted_any_ = true;
    accepted_id_ = answer.id;
    context_.count(Count::port_status_accepted);
    const auto mask = static_cast<PlaneMask>(request.port_status_mask);
    for (PlanePort p = 0; p < planes_.size(); ++p) {
      const bool was = peer_up_ >> p & 1, is = mask >> planes_[p].plane & 1;
      if (was == is || !(usable_ >> p & 1)) continue;
      peer_up_ = static_cast<PlaneMask>(peer_up_ ^ bit(p));
      reverse_[p].misses = 0;
      if (!is) {
        recovery_[p].active = false;
      } else if (context_.own_up >> p & 1) {
        start_recovery(p, now);
      }
    }
    update_live();
  } else if (answer.id != accepted_id_) {
    return context_.count(Count::port_status_stale);
  }
  context_.count(Count::endpoint_answered);
  if (const int p = control_plane(); p >= 0) {
    context_.push_control(static_cast<PlanePort>(p), answer);
  } else {
    context_.count(Count::drop_control_no_path);
  }
}

void Peer::on_response(PlanePort plane, const Bth& bth, const Eeth& response, Picoseconds now) {
  const auto id = static_cast<std::uint16_t>(bth.psn);
  if (response.op == static_cast<std::uint8_t>(EndpointOp::port_status_update)) {
    if (id != status_id_ || status_at_ == kNever) {
      return context_.count(Count::drop_unasked_answer);
    }
    status_at_ = kNever;
    return;
  }
  if (response.op != static_cast<std::uint8_t>(EndpointOp::ev_probe)) {
    return context_.count(Count::drop_bad_endpoint_op);
  }
  bool asked = false;
  if (measure_missing_ > 0 && static_cast<std::uint16_t>(id - measure_first_) < measure_sent_) {
    asked = true;
    const Picoseconds sample = std::max(context_.options.since(response.tx_ts, now), context_.options.timestamp_unit());
    changed |= stale_rtt_ || sample < base_rtt_;
    base_rtt_ = std::exchange(stale_rtt_, false) ? sample : std::min(base_rtt_, sample);
    ++measure_answers_;
    if (--measure_missing_ == 0) next_round(now);
  }
  Recovery& r = recovery_[plane];
  if (r.active && id == r.id) {
    asked = true;
    if (++r.answers >= context_.options.port_up_answers) {
      r.active = false;
      update_live();
    } else {
      r.id = send_probe(plane, random_uplink(plane));
      r.at = now + probe_timeout();
    }
  }
  if (Refresh& f = refresh_[plane]; f.waiting && id == f.id) {
    asked = true;
    f.waiting = false;
    reverse_[plane] = {f.uplink, 0, true};
  }
  context_.count(asked ? Count::ev_probe_answered : Count::drop_unasked_answer);
}

void Peer::on_deadline(Picoseconds now) {
  const MrcOptions& o = context_.options;
  if (measure_until_ <= now) {
    ++measure_timeouts_;
    next_round(now);
  }
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    Recovery& r = recovery_[p];
    if (!r.active || r.at > now) continue;
    r.answers = 0;
    r.interval = std::min(r.interval * 2, std::max(o.probe_cap, probe_timeout()));
    r.id = send_probe(p, random_uplink(p));
    r.at = now + r.interval;
  }
  if (status_at_ <= now) send_status(now);
  if (refresh_at_ <= now) refresh_reverse(now);
}

Picoseconds Peer::refresh_period() const { return std::max(whole_rtt(), context_.options.reverse_probe_floor); }

// A period from now, or later: all peers together get no more of a port for answers than a hundredth
// (ours). One by one, 128 senders to one receiver would answer for two fifths of its link.
Picoseconds Peer::next_refresh(Picoseconds now) {
  constexpr std::int64_t kAnswerBits = (154 + 24) * 8;  // on the wire
  const auto apart =
      static_cast<std::int64_t>(100.0 * kAnswerBits * 1e12 / static_cast<double>(context_.options.port_rate.count));
  const Picoseconds at = std::max(now + refresh_period(), context_.probes_free);
  context_.probes_free = at + Picoseconds{apart};
  return at;
}

// One plane per period, by a random value. After a probe without an answer, the value in use is asked;
// that one's silence is a miss.
void Peer::refresh_reverse(Picoseconds now) {
  const Picoseconds period = refresh_period();
  // Many peers wait for their turn, during which data may have come and gone.
  if (now - last_inbound_ > std::max(period * 2, context_.probes_free - now)) {
    refresh_at_ = kNever;
    return;
  }
  refresh_at_ = next_refresh(now);
  const bool outbound = last_acknowledged_.count >= 0 && now - last_acknowledged_ < period;
  if (outbound || live_ == 0) return;
  do {
    refresh_turn_ = static_cast<std::uint8_t>((refresh_turn_ + 1) % planes_.size());
  } while (!(live_ >> refresh_turn_ & 1));
  Refresh& f = refresh_[refresh_turn_];
  const bool silent = f.waiting;
  if (silent) {
    if (now - f.sent < whole_rtt() * 4) return;
    if (f.uplink == reverse_[refresh_turn_].uplink) miss(refresh_turn_);
  }
  f = {true, silent ? reverse_[refresh_turn_].uplink : random_uplink(refresh_turn_), 0, now};
  f.id = send_probe(refresh_turn_, f.uplink);
}

Picoseconds Peer::next_deadline() const {
  Picoseconds at = std::min({measure_until_, status_at_, refresh_at_});
  for (PlanePort p = 0; p < planes_.size(); ++p) {
    if (recovery_[p].active) at = std::min(at, recovery_[p].at);
  }
  return at;
}

}  // namespace loomnet::mrc
