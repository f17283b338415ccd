// Changes of a half-link in a run: carrier, rate, delay, share of the queue, impairments.
#include <algorithm>

#include "link/half_link.hpp"

namespace loomnet {

Picoseconds HalfLink::impair(Packet& packet, Picoseconds arrival) {
  packet.lost = loss_.lose(impairment_, port_.random);
  if (impairment_.corrupt > 0 && port_.random.uniform() < impairment_.corrupt) packet.corrupt = true;
  arrival = vary(arrival);
  if (impairment_.reorder > 0 && port_.random.uniform() < impairment_.reorder) {
    arrival += impairment_.jitter.scaled(port_.random.uniform());
  }
  if (impairment_.duplicate > 0 && port_.random.uniform() < impairment_.duplicate) {
    ++port_.counters.duplicated;
    Picoseconds again = arrival;
    if (impairment_.reorder > 0) again += impairment_.jitter.scaled(port_.random.uniform());
    PacketPtr copy = pool_.duplicate(packet);
    copy->arrival = again;
    in_flight_.insert(std::move(copy), again);
  }
  return arrival;
}

// Behind the last packet that took longer, also once none does any more.
Picoseconds HalfLink::vary(Picoseconds arrival) {
  if (!impairment_.in_order()) return std::max(arrival, ordered_until_);
  if (impairment_.wander.count > 0) arrival += impairment_.wander.scaled(port_.random.uniform());
  if (const Picoseconds slot = impairment_.slot; slot.count > 0) {
    arrival = slots_from_ + slot * ((arrival - slots_from_ + slot - Picoseconds{1}) / slot);
  }
  return ordered_until_ = std::max(arrival, ordered_until_);
}

void HalfLink::set_up(bool up, Picoseconds now) {
  advance(now);
  if (up_ && !up) {
    up_ = false;  // nothing that this leads to is sent here
    lose_all(now);
    ordered_until_ = {};
    end_pause(now);  // what was said before does not hold on a new link
    busy_until_ = std::min(busy_until_, now);
  }
  up_ = up;
}

void HalfLink::lose_all(Picoseconds now) {
  while (!in_flight_.empty()) port_.drop(WireDrop::link_down, *in_flight_.pop(), now, true);
  while (PacketPtr packet = queue().remove()) port_.drop(WireDrop::link_down, *packet, now);
  queued_packets_ = 0;
  report_queued(now);
  if (pauses_) [[unlikely]]
    attend(now);
}

void HalfLink::clear() {
  in_flight_.clear();
  while (queue().remove()) continue;
  queued_packets_ = 0;
}

void HalfLink::set_rate(BitsPerSecond rate, Picoseconds now) {
  advance(now);
  auto changed = std::make_shared<LinkConfig>(*config_);
  changed->rate = rate;
  config_ = std::move(changed);
  glass_ = rate.count == 0;
  ps_per_byte_ = exact_ps_per_byte(rate);
}

void HalfLink::set_queue_share(double share, Picoseconds now) {
  advance(now);
  queue().set_share(share, *config_);
}

void HalfLink::set_delay(Picoseconds delay, Picoseconds now) {
  advance(now);
  overtaking_ |= delay < delay_;
  auto changed = std::make_shared<LinkConfig>(*config_);
  changed->delay = delay_ = delay;
  config_ = std::move(changed);
  if (overtaking_) expect_departure(now);
}

void HalfLink::set_impairment(const Impairment& impairment, Picoseconds now) {
  advance(now);
  if (impairment.slot != impairment_.slot) slots_from_ = now;
  impairment_ = impairment;
  impaired_ = impairment.any() || ordered_until_ > now;
  note_observers();
  overtaking_ |= impairment.reorder > 0 || impairment.in_order();
  if (overtaking_) expect_departure(now);
}

}  // namespace loomnet
