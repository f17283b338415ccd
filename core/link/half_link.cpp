// Queues, serialiser and wire of one link direction ("MRC + SRv6 multi-plane fabrics" 2.9, 2.10).
#include "link/half_link.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "packet/ecn.hpp"
#include "packet/trim.hpp"

namespace loomnet {

std::string_view to_string(LinkDrop reason) {
  switch (reason) {
    case LinkDrop::queue_full: return "queue_full";
    case LinkDrop::control_full: return "control_full";
    case LinkDrop::link_down: return "link_down";
    case LinkDrop::loss: return "loss";
    case LinkDrop::fcs: return "fcs";
    case LinkDrop::pfc_headroom: return "pfc_headroom";
    case LinkDrop::count: break;
  }
  return "unknown";
}

namespace {
constexpr std::uint64_t kPurpose = 0x6c696e6b;  // "link"

std::uint64_t exact_ps_per_byte(BitsPerSecond rate) {
  constexpr std::uint64_t kPsBits = 8'000'000'000'000ull;
  return rate.count && kPsBits % rate.count == 0 ? kPsBits / rate.count : 0;
}

std::int64_t share_of(double share, std::int64_t whole) {
  if (!(share > 0 && share < 1)) {
    throw std::invalid_argument("LinkConfig.control_share: between 0 and 1, both excluded");
  }
  const auto part = static_cast<std::int64_t>(share * static_cast<double>(whole) + 0.5);
  return std::clamp<std::int64_t>(part, 1, whole - 1);
}
}  // namespace

HalfLink::HalfLink(EventQueue& events, PacketPool& pool, const LinkConfig& config, LinkReceiver& to,
                   std::uint16_t to_port, std::uint64_t seed, std::uint64_t stream, Domain from,
                   Domain at)
    : to_(to),
      events_(events),
      ps_per_byte_(exact_ps_per_byte(config.rate)),
      delay_(config.delay),
      id_(events.add(*this, at)),
      to_port_(to_port),
      glass_(config.rate.count == 0),
      to_host_(config.last_hop),
      data_limit_(config.data_limit),
      ecn_low_(config.ecn_low),
      ecn_high_(config.ecn_high),
      control_limit_(config.control_limit),
      control_share_(share_of(config.control_share, kWholeShare)),
      random_(seed, stream ? stream : EventQueue::number(id_), kPurpose),
      config_(config),
      pool_(pool),
      from_(from) {
  static_assert(sizeof(FlightRing) == 96);  // its slots fill the third line, from here
  assert(reinterpret_cast<char*>(&in_flight_) - reinterpret_cast<char*>(this) == 96);
}

// The event carries the packet's address, to be fetched without a look at this object.
[[gnu::always_inline]] inline void HalfLink::arm() {
  if (in_flight_.empty()) return;
  const Picoseconds head = in_flight_.first_arrival();
  if (head < scheduled_) {
    scheduled_ = head;
    events_.schedule(head, id_, reinterpret_cast<std::uintptr_t>(&in_flight_.front()));
  }
}

[[gnu::always_inline]] inline void HalfLink::launch(PacketPtr packet, Picoseconds start,
                                                    Picoseconds done) {
  Picoseconds arrival = done + delay_;
  if (impaired_) arrival = impair(*packet, arrival);
  if (tapped_) [[unlikely]] {
    packet->arrival = arrival;
    tap_->sent(number_, *packet, start, done);
  }
  in_flight_.insert(std::move(packet), arrival);
  arm();
}

[[gnu::always_inline]] inline void HalfLink::transmit(PacketPtr packet, Picoseconds start) {
  busy_until_ = start + clocking_time(packet->wire_length);
  launch(std::move(packet), start, busy_until_);
}

Offer HalfLink::offer(PacketPtr packet, Picoseconds now) {
  if (!up_) {
    drop(LinkDrop::link_down, *packet, now);
    return Offer::dropped;
  }
  if (glass_) {
    launch(std::move(packet), now, now);
    return Offer::accepted;
  }
  if (queued_packets_ > 0) advance(now);
  if (busy_until_ <= now && queued_packets_ == 0 && !paused_) {
    transmit(std::move(packet), now);
    return Offer::accepted;
  }
  return enqueue(std::move(packet), now);
}

Offer HalfLink::enqueue(PacketPtr packet, Picoseconds now) {
  Offer result = Offer::accepted;
  if (packet->queue != kControlClass && !admits(*packet, now)) {
    if (!config_.trim || !packet->trimmable) {
      const bool lossless = pauses_ && buffer_->lossless(*packet);
      drop(lossless ? LinkDrop::pfc_headroom : LinkDrop::queue_full, *packet, now);
      return Offer::dropped;
    }
    if (config_.trim_coin) cut_instead(packet);
    // A packet that is no longer than a trimmed one goes whole, as SONiC sends it.
    if (packet->wire_length > config_.trim_size) {
      if (!trim(*packet, {config_.trim_dscp, config_.trim_size, config_.trim_fix_lengths})) {
        drop(LinkDrop::queue_full, *packet, now);
        return Offer::dropped;
      }
      ++counters_.trimmed;
      result = Offer::trimmed;
    }
    packet->queue = kControlClass;
  }
  if (packet->queue == kControlClass) {
    if (control_limit_ && control_bytes_ + packet->wire_length > control_limit_) {
      drop(LinkDrop::control_full, *packet, now);
      return Offer::dropped;
    }
    control_bytes_ += packet->wire_length;
  } else {
    data_bytes_ += packet->wire_length;
    if (buffer_) buffer_->take(*packet);
    counters_.max_queue = std::max<std::uint64_t>(counters_.max_queue, data_bytes_);
  }
  ++queued_packets_;
  queues_[packet->queue].push(std::move(packet));
  tell_queued(now);
  if (paused_) [[unlikely]] {  // the serialiser may stand idle before packets that wait
    busy_until_ = std::max(busy_until_, now);
    advance(now);
  }
  if (overtaking_) [[unlikely]] expect_departure(now);
  if (pauses_) [[unlikely]] attend(now);
  // The queue is looked at when a packet in flight arrives. Live, a packet can come back from a kernel
  // switch so late that the one it waits behind has arrived: then no event is left, and the packet
  // would lie here until the next offer, which may be a retransmission seconds later.
  if (in_flight_.empty() && !paused_) [[unlikely]] serve(busy_until_);
  return result;
}

// Exchanges an arriving packet that has no room with the last one waiting, by a toss.
void HalfLink::cut_instead(PacketPtr& packet) {
  PacketFifo& queue = queues_[packet->queue];
  if (queue.empty() || !queue.back().trimmable || queue.back().wire_length < packet->wire_length ||
      random_.uniform() < 0.5) {
    return;
  }
  if (buffer_) buffer_->give(queue.back());
  data_bytes_ -= queue.back().wire_length - packet->wire_length;
  if (buffer_) buffer_->take(*packet);
  packet = queue.replace_back(std::move(packet));
}

bool HalfLink::admits(const Packet& packet, Picoseconds now) {
  const bool lossless = pauses_ && buffer_->lossless(packet);
  if (!lossless && data_limit_ && data_bytes_ + packet.wire_length > data_limit_) return false;
  if (!buffer_ || buffer_->admits(packet, data_bytes_)) return true;
  // The other ports' queues were last looked at in the past: what they have sent since is free.
  buffer_->refresh(now);
  return buffer_->admits(packet, data_bytes_);
}

void HalfLink::serve(Picoseconds now) {
  while (queued_packets_ > 0 && busy_until_ <= now) {
    if (paused_ && !may_send()) [[unlikely]] break;
    const Picoseconds start = busy_until_;
    PacketPtr packet = dequeue();
    tell_queued(start);
    transmit(std::move(packet), start);
  }
}

void HalfLink::advance(Picoseconds now) {
  serve(now);
  if (overtaking_) [[unlikely]] expect_departure(now);
  if (pauses_) [[unlikely]] attend(now);
}

void HalfLink::send_at_once(PacketPtr packet, Picoseconds now) {
  if (glass_) return launch(std::move(packet), now, now);
  advance(now);
  transmit(std::move(packet), std::max(busy_until_, now));
  if (pauses_) [[unlikely]] attend(now);
}

PacketPtr HalfLink::dequeue() {
  // Control goes first, but has at most its share of the link while data waits: what it sent ahead
  // is owed to the data behind it. The share is one of bytes, and a data packet is as long as many
  // control packets: after one, control may send as much as that packet has earned it.
  std::size_t q = data_bytes_ > 0 ? kDataClass : kQueueClasses;
  while (q < kQueueClasses && (queues_[q].empty() || (paused_ && q == kDataClass))) ++q;
  const bool data_waits = q < kQueueClasses;
  if (!queues_[kControlClass].empty() && (!data_waits || control_credit_ <= 0)) q = kControlClass;
  const std::uint64_t data_before = data_bytes_;
  PacketPtr packet = queues_[q].pop();
  --queued_packets_;
  if (q == kControlClass) {
    control_bytes_ -= packet->wire_length;
    const std::int64_t cost = packet->wire_length * (kWholeShare - control_share_);
    control_credit_ = data_waits ? control_credit_ + cost : 0;
  } else {
    data_bytes_ -= packet->wire_length;
    if (buffer_) buffer_->give(*packet);
    const std::int64_t earned = packet->wire_length * control_share_;
    control_credit_ = data_bytes_ ? std::max(control_credit_ - earned, -earned) : 0;
    if (ecn_high_ && packet->ect && data_before > ecn_low_) {
      const double p = data_before < ecn_high_ ? static_cast<double>(data_before - ecn_low_) /
                                                     static_cast<double>(ecn_high_ - ecn_low_) *
                                                     config_.ecn_share
                                               : 1.0;
      if (p >= 1 || random_.uniform() < p) {
        mark_ce(*packet);
        ++counters_.marked;
      }
    }
  }
  return packet;
}

Picoseconds HalfLink::impair(Packet& packet, Picoseconds arrival) {
  packet.lost = loss_.lose(impairment_, random_);
  if (impairment_.corrupt > 0 && random_.uniform() < impairment_.corrupt) packet.corrupt = true;
  if (impairment_.reorder > 0 && random_.uniform() < impairment_.reorder) {
    arrival += impairment_.jitter.scaled(random_.uniform());
  }
  if (impairment_.duplicate > 0 && random_.uniform() < impairment_.duplicate &&
      packet.payload.kind != PayloadKind::frame) {
    ++counters_.duplicated;
    Picoseconds again = arrival;
    if (impairment_.reorder > 0) again += impairment_.jitter.scaled(random_.uniform());
    PacketPtr copy = pool_.duplicate(packet);
    copy->arrival = again;
    in_flight_.insert(std::move(copy), again);
  }
  return arrival;
}

void HalfLink::prepare(std::uint64_t what, int stage) const {
  if (stage == 1 && what > kPauseEnd) {
    const auto* packet = reinterpret_cast<const Packet*>(what);
    fetch(packet, 128);
    if (!to_host_) return fetch(&to_);
    fetch(&packet->header[64], 128);
    return fetch(&to_, LinkReceiver::kHotBytes);
  }
  if (what <= kPauseEnd || in_flight_.empty()) return;
  to_.prepare(to_port_, in_flight_.front(), stage);
  if (stage == 2 && queued_packets_ > 0) {
    fetch(&queues_[queues_[kDataClass].empty() ? kControlClass : kDataClass].front(), 128);
  }
}

void HalfLink::on_event(std::uint64_t what, Picoseconds now) {
  if (what <= kPauseEnd) [[unlikely]] return on_timer(what, now);
  if (now < scheduled_) return;  // this event was rescheduled, and the newer one is still pending
  scheduled_ = now;  // launch() must not schedule meanwhile: arm() does, once
  if (queued_packets_ > 0) {
    if (!events_.apart()) {
      advance(now);
    } else if (!overtaking_) {
      // The sender's domain may not have run this window yet. Only packets sent before the window
      // can arrive in it, so serve up to there. Links with reordering or PFC advance on their own
      // events.
      serve(events_.window_begin() - Picoseconds{1});
    }
  }
  while (!in_flight_.empty() && in_flight_.first_arrival() <= now) {
    const Picoseconds arrival = in_flight_.first_arrival();
    PacketPtr packet = in_flight_.pop();
    if (!in_flight_.empty()) fetch(&in_flight_.front(), 128);  // its event may come unannounced
    if (packet->lost || packet->corrupt) {
      drop(packet->lost ? LinkDrop::loss : LinkDrop::fcs, *packet, now, true);
      continue;
    }
    ++delivered_packets_;
    delivered_bytes_ += packet->wire_length;
    packet->ideal = arrival;
    if (tapped_) [[unlikely]] {
      packet->arrival = arrival;
      tap_->delivered(number_, *packet, now);
    }
    to_.receive(to_port_, std::move(packet), now);
  }
  scheduled_ = kNever;
  arm();
}

void HalfLink::set_up(bool up, Picoseconds now) {
  advance(now);
  if (up_ && !up) {
    up_ = false;  // nothing that this leads to is sent here
    lose_all(now);
    end_pause(now);  // what was said before does not hold on a new link
    busy_until_ = std::min(busy_until_, now);
  }
  up_ = up;
}

void HalfLink::lose_all(Picoseconds now) {
  const auto lose = [&](auto& list, bool was_sent) {
    while (!list.empty()) drop(LinkDrop::link_down, *list.pop(), now, was_sent);
  };
  lose(in_flight_, true);
  give_back();
  for (PacketFifo& queue : queues_) lose(queue, false);
  clear();
  tell_queued(now);
  if (pauses_) [[unlikely]] attend(now);
}

void HalfLink::give_back() {
  if (!buffer_) return;
  for (std::size_t q = kDataClass; q < kQueueClasses; ++q) {
    if (queues_[q].empty()) continue;
    for (const Packet* p = &queues_[q].front(); p; p = p->next) buffer_->give(*p);
  }
}

void HalfLink::clear() {
  in_flight_.clear();
  give_back();
  for (auto& queue : queues_) queue.clear();
  queued_packets_ = 0;
  data_bytes_ = control_bytes_ = 0;
  control_credit_ = 0;
}

void HalfLink::share(SharedBuffer& buffer) {
  buffer_ = &buffer;
  pauses_ = buffer.pauses();
  buffer.add(*this);
}

void HalfLink::set_rate(BitsPerSecond rate, Picoseconds now) {
  advance(now);
  config_.rate = rate;
  glass_ = rate.count == 0;
  ps_per_byte_ = exact_ps_per_byte(rate);
}

void HalfLink::set_queue_share(double share, Picoseconds now) {
  advance(now);
  const auto part = [share](std::uint64_t of) {  // a limit stays one: 0 is none
    return of ? std::max<std::uint64_t>(static_cast<std::uint64_t>(static_cast<double>(of) * share), 1)
              : 0;
  };
  data_limit_ = part(config_.data_limit);
  control_limit_ = part(config_.control_limit);
  ecn_low_ = part(config_.ecn_low);
  ecn_high_ = part(config_.ecn_high);
}

void HalfLink::set_delay(Picoseconds delay, Picoseconds now) {
  advance(now);
  overtaking_ |= delay < delay_;
  config_.delay = delay_ = delay;
  if (overtaking_) expect_departure(now);
}

void HalfLink::set_impairment(const Impairment& impairment, Picoseconds now) {
  advance(now);
  impairment_ = impairment;
  impaired_ = impairment.any();
  overtaking_ |= impairment.reorder > 0;
  if (overtaking_) expect_departure(now);
}

}  // namespace loomnet
