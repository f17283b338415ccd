// A half-link under Priority-based Flow Control: data that is told to wait, and telling in time what
// leaves while somebody else waits for it; see pause_control.hpp.
#include <algorithm>

#include "link/half_link.hpp"
#include "packet/pfc_frame.hpp"

namespace loomnet {

// Under PFC: thresholds that were crossed, and an event for the next packet to leave while somebody
// waits for it.
void HalfLink::attend(Picoseconds now) {
  if (pauses_->due()) pauses_->attend(now);
  if (pauses_->pausing()) expect_departure(now);
}

void HalfLink::expect_departure(Picoseconds now) {
  if (queued_packets_ == 0 || busy_until_ <= now || departure_ == busy_until_) return;
  departure_ = busy_until_;
  events_.schedule(departure_, sender(), kDeparture);
}

bool HalfLink::may_send() const {
  for (std::size_t q = 0; q < kQueueClasses; ++q) {
    if (q != kDataClass && !queues_[q].empty()) return true;
  }
  return false;
}

void HalfLink::obey_pause(const Packet& packet, Picoseconds now) {
  const auto frame = PfcFrame::parse(packet.header_bytes());
  if (!frame || !(frame->enabled >> kDataClass & 1) || glass_) return;
  advance(now);
  const std::uint16_t quanta = frame->quanta[kDataClass];
  if (quanta == 0) return end_pause(now);
  if (!paused_) {
    paused_ = true;
    paused_since_ = now;
    ++counters_.pauses;
  }
  pause_end_ = now + PfcFrame::time_of(quanta, config_.rate);
  events_.schedule(pause_end_, sender(), kPauseEnd);
}

void HalfLink::end_pause(Picoseconds now) {
  if (!paused_) return;
  paused_ = false;
  paused_time_ += now - paused_since_;
  busy_until_ = std::max(busy_until_, now);
  advance(now);
}

void HalfLink::on_timer(std::uint64_t what, Picoseconds now) {
  if (what == kDeparture) return advance(now);
  if (!paused_ || now < pause_end_) return;  // ended or renewed since
  ++counters_.pause_expiries;
  end_pause(now);
}

bool HalfLink::holds_from(std::uint16_t ingress) const {
  const PacketFifo& data = queues_[kDataClass];
  if (data.empty()) return false;
  for (const Packet* p = &data.front(); p; p = p->next) {
    if (p->ingress == ingress) return true;
  }
  return false;
}

}  // namespace loomnet
