// A half-link under Priority-based Flow Control (pause_control.hpp): data waits while the far end has
// paused it, and packets leave by events of their own while its switch pauses a sender.
#include <algorithm>

#include "link/half_link.hpp"
#include "packet/pfc_frame.hpp"

namespace loomnet {

// Sees to thresholds that were crossed. While the switch pauses a sender, the next packet to leave
// gets an event: what it frees may end the pause.
void HalfLink::attend(Picoseconds now) {
  if (pauses_->due()) pauses_->attend(now);
  if (pauses_->pausing()) expect_departure(now);
}

void HalfLink::expect_departure(Picoseconds now) {
  if (queued_packets_ == 0 || busy_until_ <= now || departure_ == busy_until_) return;
  departure_ = busy_until_;
  events_.schedule(departure_, sender(), kDeparture);
}

void HalfLink::obey_pause(const Packet& packet, Picoseconds now) {
  const auto frame = PfcFrame::parse(packet.header_bytes());
  if (!frame || !(frame->enabled >> kDataClass & 1) || glass_ || !queue().pausable()) return;
  advance(now);
  const std::uint16_t quanta = frame->quanta[kDataClass];
  if (quanta == 0) return end_pause(now);
  if (!paused_) {
    paused_ = true;
    queue().hold_data(true);
    paused_since_ = now;
    ++port_.counters.pauses;
  }
  pause_end_ = now + PfcFrame::time_of(quanta, config_->rate);
  events_.schedule(pause_end_, sender(), kPauseEnd);
}

void HalfLink::end_pause(Picoseconds now) {
  if (!paused_) return;
  paused_ = false;
  queue().hold_data(false);
  paused_time_ += now - paused_since_;
  busy_until_ = std::max(busy_until_, now);
  advance(now);
}

void HalfLink::on_timer(std::uint64_t what, Picoseconds now) {
  if (what == kDeparture) return advance(now);
  if (!paused_ || now < pause_end_) return;  // ended or renewed since
  ++port_.counters.pause_expiries;
  end_pause(now);
}

}  // namespace loomnet
