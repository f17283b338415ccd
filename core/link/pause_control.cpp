// Crossing thresholds, and the frames that say so; see pause_control.hpp.
#include "link/pause_control.hpp"

#include <algorithm>
#include <stdexcept>

#include "link/half_link.hpp"
#include "link/shared_buffer.hpp"
#include "packet/pfc_frame.hpp"

namespace loomnet {

std::uint64_t pfc_headroom(const LinkConfig& forward, const LinkConfig& backward) {
  const auto clocked = [](std::uint32_t frame, BitsPerSecond rate) {
    return serialization_time(frame + kFramingOverhead, rate);
  };
  const Picoseconds until_heard =
      clocked(backward.largest_frame, backward.rate) + clocked(kMinFrameBytes, backward.rate) + backward.delay;
  const Picoseconds until_quiet = clocked(forward.largest_frame, forward.rate) + forward.delay;
  // The frame that crossed xoff may lie above it whole.
  return bytes_in(until_heard + until_quiet, forward.rate) + forward.largest_frame + 1;
}

PauseControl::PauseControl(SharedBuffer& buffer, EventQueue& events, PacketPool& pool, std::size_t ports, Domain domain)
    : buffer_(buffer), events_(events), pool_(pool), id_(events.add(*this, domain)), ports_(ports) {
  noted_.reserve(ports);
}

void PauseControl::guard(std::uint16_t port, const PfcConfig& config, BitsPerSecond rate, HalfLink& back) {
  if (config.xon >= config.xoff) throw std::invalid_argument("PfcConfig.xon: must be below xoff");
  Port& p = ports_.at(port);
  p.back = &back;
  p.config = config;
  p.limit = std::uint64_t{config.xoff} + config.headroom;
  p.half_pause = PfcFrame::time_of(kMostQuanta / 2, rate);
}

void PauseControl::attend(Picoseconds now) {
  if (attending_) return;  // bringing links up to date has crossed one more: the loop sees to it
  attending_ = true;
  while (!noted_.empty()) {
    const std::uint16_t number = noted_.back();
    noted_.pop_back();
    Port& p = ports_[number];
    p.noted = false;
    if (p.bytes > p.counters.max_bytes) {
      // The port's packets wait in several queues, each of which has sent since it was last looked at. When that
      // was depends on how the engine serves events, and the figure must not.
      buffer_.refresh(now);
      p.counters.max_bytes = std::max(p.counters.max_bytes, p.bytes);
    }
    if (!p.paused && p.bytes > p.config.xoff) {
      buffer_.refresh(now);  // what has left since its queue was last looked at takes no room
      if (p.bytes > p.config.xoff) pause(p, number, now);
    } else if (p.paused && p.bytes <= p.config.xon) {
      p.paused = false;
      --paused_ports_;
      send(p, 0, now);
    }
  }
  attending_ = false;
}

void PauseControl::pause(Port& p, std::uint16_t number, Picoseconds now) {
  p.paused = true;
  ++paused_ports_;
  ++p.counters.pauses;
  renew(p, number, now);
  buffer_.expect_departures(now);
}

void PauseControl::renew(Port& p, std::uint16_t number, Picoseconds now) {
  p.moved = false;
  p.renewal = now + p.half_pause;
  events_.schedule(p.renewal, id_, number);
  send(p, kMostQuanta, now);
}

void PauseControl::send(Port& p, std::uint16_t quanta, Picoseconds now) {
  if (!p.back->up()) return;  // no carrier: the far end sends nothing and hears nothing
  PacketPtr packet = pool_.allocate();
  PfcFrame frame;
  frame.enabled = 1u << kDataClass;
  frame.quanta[kDataClass] = quanta;
  packet->header_length = kMinFrameBytes;
  std::fill_n(packet->header.begin(), kMinFrameBytes, std::uint8_t{0});
  ByteWriter out({packet->header.data(), kMinFrameBytes});
  frame.serialize(out);
  packet->wire_length = kMinFrameBytes;
  packet->queue = kMacControlClass;
  packet->ideal = now;
  ++p.counters.frames;
  p.back->send_at_once(std::move(packet), now);
}

void PauseControl::on_carrier(std::uint16_t port, Picoseconds now) {
  if (paused(port)) renew(ports_[port], port, now);
}

void PauseControl::on_event(std::uint64_t what, Picoseconds now) {
  const auto number = static_cast<std::uint16_t>(what);
  Port& p = ports_[number];
  if (!p.paused || now < p.renewal) return;  // of a pause that has ended since
  if (!p.moved && observer_) observer_->on_stuck(number);
  renew(p, number, now);
}

}  // namespace loomnet
