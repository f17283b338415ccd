// The serialiser and the wire behind a port's queue, advanced lazily; see half_link.hpp.
#include "link/half_link.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "link/queue_disciplines.hpp"
#include "packet/ecn.hpp"

namespace loomnet {
namespace {
constexpr std::uint64_t kPurpose = 0x6c696e6b, kEgressPurpose = 0x65677265;  // "link", "egre"
}

std::uint64_t HalfLink::exact_ps_per_byte(BitsPerSecond rate) {
  constexpr std::uint64_t kPsBits = 8'000'000'000'000ull;
  return rate.count && kPsBits % rate.count == 0 ? kPsBits / rate.count : 0;
}

HalfLink::HalfLink(EventQueue& events, PacketPool& pool, std::shared_ptr<const LinkConfig> config, LinkReceiver& to,
                   std::uint16_t to_port, std::uint64_t seed, std::uint64_t stream, Domain from, Domain at)
    : to_(to),
      events_(events),
      ps_per_byte_(exact_ps_per_byte(config->rate)),
      delay_(config->delay),
      id_(events.add(*this, at)),
      to_port_(to_port),
      glass_(config->rate.count == 0),
      to_host_(config->last_hop),
      priority_(port_, *config),
      config_(std::move(config)),
      pool_(pool),
      from_(from) {
  static_assert(sizeof(FlightRing) == 96);  // its slots fill the third line, from here
  assert(reinterpret_cast<char*>(&in_flight_) - reinterpret_cast<char*>(this) == 96);
  const std::uint64_t own = stream ? stream : EventQueue::number(id_);
  port_.random = RandomStream(seed, own, kPurpose);
  egress_seed_ = hash_key(seed, own, kEgressPurpose);
  if (config_->queue) chosen_ = make_queue(port_, *config_);
  port_.counters.queue_drop_names = queue().drop_names();
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

[[gnu::always_inline]] inline void HalfLink::launch(PacketPtr packet, Picoseconds start, Picoseconds done) {
  Picoseconds arrival = done + delay_;
  if (special_) [[unlikely]]
    arrival = depart(*packet, start, done);
  in_flight_.insert(std::move(packet), arrival);
  arm();
}

[[gnu::always_inline]] inline void HalfLink::transmit(PacketPtr packet, Picoseconds start) {
  busy_until_ = start + clocking_time(packet->wire_length);
  launch(std::move(packet), start, busy_until_);
}

// Calls the hook, impairs the packet and reports it, in this order; returns the time of arrival.
Picoseconds HalfLink::depart(Packet& packet, Picoseconds start, Picoseconds done) {
  if (hook_ && packet.queue != kMacControlClass) {
    const std::uint8_t before = std::exchange(port_.ecn_before_mark, 0);
    const Departure departure{start, packet.wire_length, packet.queue, is_ce(packet), queue().classes(), before != 0};
    const EgressVerdict verdict = hook_->dequeue(packet.header_bytes(), departure);
    if (verdict == EgressVerdict::mark && packet.ect) {
      mark_ce(packet);
      ++port_.counters.marked;
      if (port_.tap) port_.tap->marked(port_.number, packet, hook_->note(), start);
    } else if (verdict == EgressVerdict::unmark && before != 0) {
      set_ecn_bits(packet, before);
      --port_.counters.marked;
    }
  }
  Picoseconds arrival = done + delay_;
  if (impaired_) arrival = impair(packet, arrival);
  if (port_.tap) {
    packet.arrival = arrival;
    port_.tap->sent(port_.number, packet, start, done);
  }
  return arrival;
}

Offer HalfLink::offer(PacketPtr packet, Picoseconds now) {
  if (!up_) {
    port_.drop(WireDrop::link_down, *packet, now);
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
  Offer result;
  if (chosen_) [[unlikely]] {
    result = enqueue_chosen(std::move(packet), now);
  } else {
    result = priority_.enqueue(std::move(packet), now);
    queued_packets_ += result != Offer::dropped;
  }
  if (result == Offer::dropped) return result;
  report_queued(now);
  if (paused_) [[unlikely]] {  // the serialiser may stand idle before packets that wait
    busy_until_ = std::max(busy_until_, now);
    advance(now);
  }
  if (overtaking_) [[unlikely]]
    expect_departure(now);
  if (pauses_) [[unlikely]]
    attend(now);
  // The queue is looked at when a packet in flight arrives. Live, a packet can come back from a kernel
  // switch so late that the one it waits behind has arrived: then no event is left, and the packet
  // would lie here until the next offer, which may be a retransmission seconds later.
  if (in_flight_.empty() && !paused_) [[unlikely]]
    serve(busy_until_);
  return result;
}

Offer HalfLink::enqueue_chosen(PacketPtr packet, Picoseconds now) {
  const Offer result = chosen_->enqueue(std::move(packet), now);
  queued_packets_ = chosen_->packets();
  return result;
}

void HalfLink::serve_chosen(Picoseconds start) {
  PacketPtr packet = chosen_->dequeue(start);
  queued_packets_ = chosen_->packets();
  report_queued(start);
  if (packet) transmit(std::move(packet), start);
}

void HalfLink::serve(Picoseconds now) {
  while (queued_packets_ > 0 && busy_until_ <= now) {
    if (paused_ && !queue().may_send()) [[unlikely]]
      break;
    const Picoseconds start = busy_until_;
    if (chosen_) [[unlikely]] {
      serve_chosen(start);
      continue;
    }
    PacketPtr packet = priority_.dequeue(start);
    --queued_packets_;
    report_queued(start);
    transmit(std::move(packet), start);
  }
}

void HalfLink::advance(Picoseconds now) {
  serve(now);
  if (overtaking_) [[unlikely]]
    expect_departure(now);
  if (pauses_) [[unlikely]]
    attend(now);
}

std::uint64_t HalfLink::carried_bytes(Picoseconds now) {
  if (queued_packets_ > 0) advance(now);
  if (in_flight_.empty() || glass_) return delivered_bytes_;
  const Packet& next = in_flight_.front();
  if (next.lost || next.corrupt) return delivered_bytes_;
  const std::int64_t whole = clocking_time(next.wire_length).count;
  const std::int64_t missing = std::clamp<std::int64_t>((in_flight_.first_arrival() - now).count, 0, whole);
  // Its preamble and gap take their share of the time, as they do of the rate.
  return delivered_bytes_ +
         static_cast<std::uint64_t>(static_cast<double>(next.wire_length) * static_cast<double>(whole - missing) /
                                    static_cast<double>(whole));
}

void HalfLink::send_at_once(PacketPtr packet, Picoseconds now) {
  if (glass_) return launch(std::move(packet), now, now);
  advance(now);
  transmit(std::move(packet), std::max(busy_until_, now));
  if (pauses_) [[unlikely]]
    attend(now);
}

void HalfLink::share(SharedBuffer& buffer) {
  if (buffer.pauses() && !queue().pausable()) {
    throw std::invalid_argument("link: a port of a switch with PFC queues by priority or laggard_first");
  }
  queue().draw_from(buffer);
  pauses_ = buffer.pauses();
  buffer.add(*this);
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
  if (stage == 2 && queued_packets_ > 0 && !chosen_) priority_.prepare();
}

void HalfLink::on_event(std::uint64_t what, Picoseconds now) {
  if (what <= kPauseEnd) [[unlikely]]
    return on_timer(what, now);
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
      port_.drop(packet->lost ? WireDrop::loss : WireDrop::fcs, *packet, now, true);
      continue;
    }
    ++delivered_packets_;
    delivered_bytes_ += packet->wire_length;
    packet->ideal = arrival;
    if (special_ && port_.tap) [[unlikely]] {
      packet->arrival = arrival;
      port_.tap->delivered(port_.number, *packet, now);
    }
    to_.receive(to_port_, std::move(packet), now);
  }
  scheduled_ = kNever;
  arm();
}

}  // namespace loomnet
