// Priority-based Flow Control of one switch: what each ingress port's packets take of the buffer,
// and the pause frames that follow (IEEE 802.1Qbb).
//
// One priority is lossless, the data class. A port whose bytes exceed `xoff` pauses the far end, and
// lets it go at `xon`; what the far end sends until it has heard fits the headroom. A pause runs out
// by itself, so it is renewed after half its time: a lost frame delays, it does not hang.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/event_queue.hpp"
#include "link/link_config.hpp"
#include "packet/packet.hpp"

namespace loomnet {

class HalfLink;
class SharedBuffer;

// Room above xoff that loses nothing: for the frame that made the port at `forward`'s far end pause, and for
// what arrives until the pause holds. The pause frame waits for a frame on `backward`, crosses that link, and
// finds the sender at the start of a frame.
std::uint64_t pfc_headroom(const LinkConfig& forward, const LinkConfig& backward);

struct PauseCounters {
  std::uint64_t pauses = 0;     // times that the far end was paused
  std::uint64_t frames = 0;     // PFC frames sent: pauses, renewals, ends
  std::uint64_t max_bytes = 0;  // most that has waited of this ingress, once what may leave at that time has left
};

class PauseControl final : public EventHandler {
 public:
  // Hears of an ingress port whose sender is paused while nothing of it has left for half a pause.
  class StuckObserver {
   public:
    virtual ~StuckObserver() = default;
    virtual void on_stuck(std::uint16_t port) = 0;
  };

  PauseControl(SharedBuffer& buffer, EventQueue& events, PacketPool& pool, std::size_t ports, Domain domain);
  // Frames that pause what comes in by `port` at this rate leave by `back`.
  void guard(std::uint16_t port, const PfcConfig& config, BitsPerSecond rate, HalfLink& back);
  void observe(StuckObserver* observer) { observer_ = observer; }

  bool guards(std::uint16_t port) const { return port < ports_.size() && ports_[port].back; }
  bool admits(std::uint16_t port, std::uint32_t length) const {
    return ports_[port].bytes + length <= ports_[port].limit;
  }
  void take(std::uint16_t port, std::uint32_t length) {
    Port& p = ports_[port];
    p.bytes += length;
    if (p.bytes > p.counters.max_bytes || (p.bytes > p.config.xoff && !p.paused)) note(p, port);
  }
  void give(std::uint16_t port, std::uint32_t length) {
    Port& p = ports_[port];
    p.bytes -= length;
    p.moved = true;
    if (p.paused && p.bytes <= p.config.xon) note(p, port);
  }
  // A threshold has been crossed, or a port may hold more than ever: attend() is due, once the link that found
  // it is consistent.
  bool due() const { return !noted_.empty(); }
  void attend(Picoseconds now);
  // Some sender is paused: links must tell of every packet that leaves when it leaves.
  bool pausing() const { return paused_ports_ > 0; }
  // The link at `port` has carrier again: a pause it lost is said again.
  void on_carrier(std::uint16_t port, Picoseconds now);
  void on_event(std::uint64_t port, Picoseconds now) override;

  std::uint64_t bytes(std::uint16_t port) const { return ports_[port].bytes; }
  bool paused(std::uint16_t port) const { return guards(port) && ports_[port].paused; }
  // Its sender is paused, and nothing of it has left since the pause was last said.
  bool stuck(std::uint16_t port) const { return paused(port) && !ports_[port].moved; }
  const PauseCounters& counters(std::uint16_t port) const { return ports_[port].counters; }

 private:
  struct Port {
    HalfLink* back = nullptr;  // null: not guarded
    PfcConfig config;
    std::uint64_t bytes = 0, limit = 0;
    Picoseconds half_pause{};   // time of half the quanta that a frame names
    Picoseconds renewal = kNever;
    bool paused = false, noted = false, moved = false;
    PauseCounters counters;
  };
  void note(Port& port, std::uint16_t number) {
    if (port.noted) return;
    port.noted = true;
    noted_.push_back(number);
  }
  void pause(Port& port, std::uint16_t number, Picoseconds now);
  void renew(Port& port, std::uint16_t number, Picoseconds now);
  void send(Port& port, std::uint16_t quanta, Picoseconds now);

  SharedBuffer& buffer_;
  EventQueue& events_;
  PacketPool& pool_;
  ObjectId id_;
  StuckObserver* observer_ = nullptr;
  std::uint32_t paused_ports_ = 0;
  bool attending_ = false;
  std::vector<Port> ports_;
  std::vector<std::uint16_t> noted_;
};

}  // namespace loomnet
