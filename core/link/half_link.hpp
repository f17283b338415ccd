// One direction of a link: the sending port's queue (port_queue.hpp), and the wire behind it, which
// serialises, delays and delivers.
//
// The model advances lazily: an offer or an arrival decides what has left the queue since the last
// one, at the times at which it left. A hop costs one event, contended or not.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "clock/event_queue.hpp"
#include "clock/fetch.hpp"
#include "link/egress_hook.hpp"
#include "link/flight_ring.hpp"
#include "link/impairment.hpp"
#include "link/link_config.hpp"
#include "link/priority_queue.hpp"
#include "link/sending_port.hpp"
#include "link/shared_buffer.hpp"
#include "packet/packet.hpp"
#include "packet/tap.hpp"

namespace loomnet {

// Where a half-link ends.
class LinkReceiver {
 public:
  virtual ~LinkReceiver() = default;
  virtual void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) = 0;
  // A packet comes in by `port` soon: fetch what that will touch, change nothing. Stages 2 and 3 of
  // EventHandler::prepare; the first has fetched the packet and of a host's NIC kHotBytes.
  static constexpr std::size_t kHotBytes = 384;
  virtual void prepare(std::uint16_t port, const Packet& packet, int stage) const {
    (void)port, (void)packet, (void)stage;
  }
};

// What every packet touches lies in the first three cache lines, what a queue needs behind them.
class alignas(128) HalfLink final : public EventHandler {
 public:
  // `stream` names its random stream, 0: its own number of object. A fabric built in part gives each
  // link the stream that it has in the whole. `from` and `at`: the domains of its two ends.
  HalfLink(EventQueue& events, PacketPool& pool, std::shared_ptr<const LinkConfig> config, LinkReceiver& to,
           std::uint16_t to_port, std::uint64_t seed, std::uint64_t stream = 0, Domain from = kAnybody,
           Domain at = kAnybody);
  HalfLink(EventQueue& events, PacketPool& pool, const LinkConfig& config, LinkReceiver& to, std::uint16_t to_port,
           std::uint64_t seed, std::uint64_t stream = 0)
      : HalfLink(events, pool, std::make_shared<const LinkConfig>(config), to, to_port, seed, stream) {}

  // Hands a packet to the sending port at `now`. Equal to or after every earlier offer's time.
  Offer offer(PacketPtr packet, Picoseconds now);
  // Sends a MAC control frame ahead of all that waits, behind the frame in transmission.
  void send_at_once(PacketPtr packet, Picoseconds now);
  // A PFC frame has come in beside this direction: data stops or goes on. The far end's bytes are
  // not trusted: a frame that is no PFC frame is ignored.
  void obey_pause(const Packet& packet, Picoseconds now);
  // Data must wait, until this time at most unless the pause is renewed.
  bool paused() const { return paused_; }
  Picoseconds pause_end() const { return pause_end_; }
  // Its queue's discipline may be under PFC.
  bool pausable() const { return queue().pausable(); }
  // Some packet of data that came in by this port waits here. For ports under PFC.
  bool holds_from(std::uint16_t ingress) const { return queue().holds_from(ingress); }
  // When the serialiser is free of what has been offered so far, queues not counted.
  Picoseconds busy_until() const { return busy_until_; }
  std::uint64_t queued_bytes(Picoseconds now) {
    advance(now);
    return queue().bytes();
  }

  // Bytes of frames that have come out at the far end by `now`: those delivered, and of the one that is
  // arriving the part that has. Behind a change of the rate that part is off by a packet at most.
  std::uint64_t carried_bytes(Picoseconds now);

  // Carrier. Going down loses the packets queued and in flight; none is accepted until up again.
  void set_up(bool up, Picoseconds now);
  void set_rate(BitsPerSecond rate, Picoseconds now);
  // From now on the queues hold this share of what config() says, and packets are marked from it on.
  void set_queue_share(double share, Picoseconds now);
  void set_delay(Picoseconds delay, Picoseconds now);
  void set_impairment(const Impairment& impairment, Picoseconds now);

  // Shows `tap` (null: none) every packet from now on, under this number.
  void watch(Tap* tap, std::uint32_t number) {
    port_.tap = tap;
    port_.number = number;
    note_observers();
  }
  // What queues here drop from now on is added to `losses` (null: to nothing).
  void count_losses(QueueLosses* losses) { port_.losses = losses; }
  // Calls `hook` (null: none) for every packet that leaves from now on.
  void set_egress(std::unique_ptr<EgressHook> hook) {
    hook_ = std::move(hook);
    port_.ecn_before_mark = 0;
    note_observers();
  }
  EgressHook* egress() const { return hook_.get(); }
  // Key of a random stream that belongs to this half-link's hook.
  std::uint64_t egress_seed() const { return egress_seed_; }
  // Every packet that leaves before this time has been reported.
  Picoseconds settled(Picoseconds now) const { return queued_packets_ > 0 && busy_until_ < now ? busy_until_ : now; }

  // Draws its data queues from the buffer of the switch it leaves; whether that has PFC is settled.
  void share(SharedBuffer& buffer);

  bool up() const { return up_; }
  const LinkConfig& config() const { return *config_; }
  const LinkCounters& counters() const {
    port_.counters.packets = delivered_packets_;
    port_.counters.bytes = delivered_bytes_;
    port_.counters.paused = paused_time_;
    if (paused_) port_.counters.paused += events_.now() - paused_since_;
    return port_.counters;
  }
  ObjectId id() const { return id_; }
  // Packets queued or in flight: part of the conservation sum of a run.
  std::size_t held() const { return in_flight_.size() + queued_packets_; }
  // Lets go of everything held (the end of a run).
  void clear();

  void on_event(std::uint64_t what, Picoseconds now) override;
  void prepare(std::uint64_t what, int stage) const override;
  // An offer comes soon.
  void prepare_offer() const { fetch(this, 256); }

 private:
  friend class SharedBuffer;
  static constexpr std::uint64_t kDeparture = 1, kPauseEnd = 2;  // events; others are addresses
  void advance(Picoseconds now);
  void serve(Picoseconds now);
  void attend(Picoseconds now);
  void expect_departure(Picoseconds now);
  void on_timer(std::uint64_t what, Picoseconds now);
  ObjectId sender() { return sender_ ? sender_ : sender_ = from_ == kAnybody ? id_ : events_.add(*this, from_); }
  void end_pause(Picoseconds now);
  Offer enqueue(PacketPtr packet, Picoseconds now);
  // Out of line, so that the default discipline stays inlined.
  [[gnu::noinline]] Offer enqueue_chosen(PacketPtr packet, Picoseconds now);
  [[gnu::noinline]] void serve_chosen(Picoseconds start);
  void transmit(PacketPtr packet, Picoseconds start);
  void launch(PacketPtr packet, Picoseconds start, Picoseconds done);
  void arm();
  PortQueue& queue() { return chosen_ ? *chosen_ : static_cast<PortQueue&>(priority_); }
  const PortQueue& queue() const { return chosen_ ? *chosen_ : static_cast<const PortQueue&>(priority_); }
  void note_observers() { special_ = impaired_ || hook_ || port_.tap; }
  Picoseconds depart(Packet& packet, Picoseconds start, Picoseconds done);
  Picoseconds impair(Packet& packet, Picoseconds arrival);
  Picoseconds vary(Picoseconds arrival);
  void report_queued(Picoseconds now) {
    if (special_ && port_.tap) [[unlikely]]
      port_.tap->queued(port_.number, queue().bytes(), now);
  }
  void lose_all(Picoseconds now);
  static std::uint64_t exact_ps_per_byte(BitsPerSecond rate);  // 0: the rate does not divide evenly
  Picoseconds clocking_time(std::uint32_t wire_length) const {
    const std::uint64_t bytes =
        (wire_length < kMinFrameBytes ? kMinFrameBytes : wire_length) + std::uint64_t{kFramingOverhead};
    return ps_per_byte_ ? Picoseconds{static_cast<std::int64_t>(bytes * ps_per_byte_)}
                        : serialization_time(bytes, config_->rate);
  }

  LinkReceiver& to_;
  EventQueue& events_;
  Picoseconds scheduled_ = kNever;  // earliest pending event of ours
  Picoseconds busy_until_{};
  std::uint64_t ps_per_byte_ = 0;  // 0: use the exact division
  Picoseconds delay_{};            // config_->delay
  ObjectId id_;
  std::uint16_t to_port_;
  bool up_ = true;
  bool paused_ = false;  // by PFC: data waits

  PauseControl* pauses_ = nullptr;    // of the switch's buffer, where there is PFC
  std::uint32_t queued_packets_ = 0;  // the queue's
  bool special_ = false;  // the link is impaired, or there is a hook or a tap
  bool impaired_ = false;
  bool glass_ = false;    // config_->rate is 0
  bool to_host_ = false;  // config_->last_hop
  std::uint64_t delivered_packets_ = 0, delivered_bytes_ = 0;
  FlightRing in_flight_;

  // Only where packets queue. The default discipline lies here, so that its calls are inlined.
  std::unique_ptr<PortQueue> chosen_;  // another discipline; null: priority_
  PriorityQueue priority_;
  // Packets may arrive in another order than they were sent, or long after: the head's arrival is not in time for
  // those behind it.
  bool overtaking_ = false;
  Picoseconds departure_ = kNever;  // of the last packet there is a departure event for
  mutable SendingPort port_;        // its counters but for what was delivered
  std::shared_ptr<const LinkConfig> config_;  // of all links of the kind, until this one's changes
  PacketPool& pool_;
  Picoseconds pause_end_{}, paused_since_{}, paused_time_{};
  Domain from_;          // the sending node
  ObjectId sender_ = 0;  // this in events of the sending node, once there are any
  std::unique_ptr<EgressHook> hook_;
  std::uint64_t egress_seed_;
  LossProcess loss_;
  Impairment impairment_;
  Picoseconds ordered_until_{};  // no packet arrives before this one, which took longer
  Picoseconds slots_from_{};
};

}  // namespace loomnet
