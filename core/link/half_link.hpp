// One direction of a link: the sending port's strict-priority queues, the serialiser, the wire.
//
// The model advances lazily: what leaves the queue is decided when somebody looks (an offer, an
// arrival), never by an event of its own, so a hop costs one event, contended or not.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "clock/event_queue.hpp"
#include "clock/fetch.hpp"
#include "clock/random.hpp"
#include "link/flight_ring.hpp"
#include "link/impairment.hpp"
#include "link/shared_buffer.hpp"
#include "packet/packet.hpp"
#include "packet/tap.hpp"

namespace loomnet {

struct LinkConfig {
  BitsPerSecond rate{};             // 0: no serialiser and no queue (a panel's egress)
  Picoseconds delay{};
  // Bytes: 400 Gb/s over 100 ms hold 5 GB.
  std::uint64_t data_limit = 0;     // of all data queues; 0: no limit
  std::uint64_t control_limit = 0;  // of the control queue; 0: no limit
  std::uint64_t ecn_low = 0;        // RED marking begins here (data queued at dequeue) …
  std::uint64_t ecn_high = 0;       // … and is certain from here on; 0: no marking
  double ecn_share = 1;             // probability just below ecn_high (RED's maximum)
  // Of the link, that the control queue may take while data waits: between 0 and 1, both excluded.
  double control_share = 0.25;
  bool trim = false;                // cut trimmable packets that find the data queue full
  // Which packet is cut: the arriving one (false), or by a toss of the link's own stream that one or
  // the last that waits, so that of flows in lock-step not always the same one loses.
  bool trim_coin = true;
  bool trim_fix_lengths = true;     // rewrite IPv6 and UDP lengths of a trimmed packet
  bool last_hop = false;            // the far end is a host
  std::uint32_t trim_size = 128;    // bytes of Ethernet frame a trimmed packet keeps
  std::uint8_t trim_dscp = 0;       // of a trimmed packet: its transport's code
  PfcConfig pfc;                    // of the switch port that this direction ends at
};

// `pfc_headroom`: a lossless packet that no reserved byte was left for; faults can lead to that.
enum class LinkDrop : std::uint8_t {
  queue_full, control_full, link_down, loss, fcs, pfc_headroom, count
};
std::string_view to_string(LinkDrop reason);

struct LinkCounters {
  std::uint64_t packets = 0;       // delivered to the far end
  std::uint64_t bytes = 0;         // their frames without FCS
  std::uint64_t trimmed = 0;
  std::uint64_t marked = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t max_queue = 0;     // bytes of data queued, highest seen
  std::uint64_t pauses = 0;        // times that PFC stopped this direction's data …
  std::uint64_t pause_expiries = 0;  // … and that such a pause ran out instead of being ended
  Picoseconds paused{};            // how long altogether, up to now
  std::array<std::uint64_t, static_cast<std::size_t>(LinkDrop::count)> drops{};
};

enum class Offer : std::uint8_t { accepted, trimmed, dropped };

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

// What every packet touches lies in the first three cache lines, what a queue needs in the fourth.
class alignas(128) HalfLink final : public EventHandler {
 public:
  // `stream` names its random stream, 0: its own number of object. A fabric built in part gives each
  // link the stream that it has in the whole. `from` and `at`: the domains of its two ends.
  HalfLink(EventQueue& events, PacketPool& pool, const LinkConfig& config, LinkReceiver& to,
           std::uint16_t to_port, std::uint64_t seed, std::uint64_t stream = 0,
           Domain from = kAnybody, Domain at = kAnybody);

  // Hands a packet to the sending port at `now`. Equal to or after every earlier offer's time.
  Offer offer(PacketPtr packet, Picoseconds now);
  // True when a packet offered now would be clocked out at once.
  bool idle(Picoseconds now) {
    advance(now);
    return busy_until_ <= now && queued_packets_ == 0;
  }
  // Sends a MAC control frame ahead of all that waits, behind the frame in transmission.
  void send_at_once(PacketPtr packet, Picoseconds now);
  // A PFC frame has come in beside this direction: data stops or goes on. The far end's bytes are
  // not trusted: a frame that is no PFC frame is ignored.
  void obey_pause(const Packet& packet, Picoseconds now);
  // Data must wait, until this time at most unless the pause is renewed.
  bool paused() const { return paused_; }
  Picoseconds pause_end() const { return pause_end_; }
  // Some packet of data that came in by this port waits here.
  bool holds_from(std::uint16_t ingress) const;
  // When the serialiser is free of what has been offered so far, queues not counted.
  Picoseconds busy_until() const { return busy_until_; }
  std::uint64_t queued_bytes(Picoseconds now) {
    advance(now);
    return data_bytes_ + control_bytes_;
  }

  // Carrier. Going down loses the packets queued and in flight; none is accepted until up again.
  void set_up(bool up, Picoseconds now);
  void set_rate(BitsPerSecond rate, Picoseconds now);
  // From now on the queues hold this share of what config() says, and packets are marked from it on.
  void set_queue_share(double share, Picoseconds now);
  void set_delay(Picoseconds delay, Picoseconds now);
  void set_impairment(const Impairment& impairment, Picoseconds now);

  // Shows `tap` (null: none) every packet from now on, under this number.
  void watch(Tap* tap, std::uint32_t number) {
    tap_ = tap;
    tapped_ = tap != nullptr;
    number_ = number;
  }
  // Every packet that leaves before this time has been told of.
  Picoseconds settled(Picoseconds now) const {
    return queued_packets_ > 0 && busy_until_ < now ? busy_until_ : now;
  }

  // Draws its data queues from the buffer of the switch it leaves; whether that has PFC is settled.
  void share(SharedBuffer& buffer);

  bool up() const { return up_; }
  const LinkConfig& config() const { return config_; }
  const LinkCounters& counters() const {
    counters_.packets = delivered_packets_;
    counters_.bytes = delivered_bytes_;
    counters_.paused = paused_time_;
    if (paused_) counters_.paused += events_.now() - paused_since_;
    return counters_;
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
  static constexpr std::int64_t kWholeShare = 256;
  static constexpr std::uint64_t kDeparture = 1, kPauseEnd = 2;  // events; others are addresses
  void advance(Picoseconds now);
  void serve(Picoseconds now);
  void attend(Picoseconds now);
  void expect_departure(Picoseconds now);
  void on_timer(std::uint64_t what, Picoseconds now);
  ObjectId sender() {
    return sender_ ? sender_ : sender_ = from_ == kAnybody ? id_ : events_.add(*this, from_);
  }
  void end_pause(Picoseconds now);
  bool may_send() const;
  bool admits(const Packet& packet, Picoseconds now);
  void cut_instead(PacketPtr& packet);
  PacketPtr dequeue();
  Offer enqueue(PacketPtr packet, Picoseconds now);
  void transmit(PacketPtr packet, Picoseconds start);
  void launch(PacketPtr packet, Picoseconds start, Picoseconds done);
  void arm();
  Picoseconds impair(Packet& packet, Picoseconds arrival);
  void drop(LinkDrop reason, const Packet& packet, Picoseconds now, bool was_sent = false) {
    ++counters_.drops[static_cast<std::size_t>(reason)];
    if (tapped_) [[unlikely]] tap_->dropped(number_, packet, to_string(reason), was_sent, now);
  }
  void tell_queued(Picoseconds now) {
    if (tapped_) [[unlikely]] tap_->queued(number_, data_bytes_ + control_bytes_, now);
  }
  void lose_all(Picoseconds now);
  void give_back();
  Picoseconds clocking_time(std::uint32_t wire_length) const {
    const std::uint64_t bytes = (wire_length < kMinFrameBytes ? kMinFrameBytes : wire_length) +
                                std::uint64_t{kFramingOverhead};
    return ps_per_byte_ ? Picoseconds{static_cast<std::int64_t>(bytes * ps_per_byte_)}
                        : serialization_time(bytes, config_.rate);
  }

  LinkReceiver& to_;
  EventQueue& events_;
  Picoseconds scheduled_ = kNever;  // earliest pending event of ours
  Picoseconds busy_until_{};
  std::uint64_t ps_per_byte_ = 0;  // 0: the rate does not divide evenly, use the exact division
  Picoseconds delay_{};            // config_.delay
  ObjectId id_;
  std::uint16_t to_port_;
  bool up_ = true;
  bool paused_ = false;  // by PFC: data waits

  std::uint64_t data_bytes_ = 0;
  std::uint32_t queued_packets_ = 0;
  bool impaired_ = false;
  bool glass_ = false;    // config_.rate is 0
  bool to_host_ = false;  // config_.last_hop
  bool tapped_ : 1 = false;   // tap_ is not null
  // Packets may arrive in another order than they were sent: the head's arrival is not in time for
  // those behind it. Shares a byte with tapped_, so that in_flight_ keeps its place in the
  // cache lines.
  bool overtaking_ : 1 = false;
  std::uint64_t delivered_packets_ = 0, delivered_bytes_ = 0;
  FlightRing in_flight_;

  // Only where packets queue.
  SharedBuffer* buffer_ = nullptr;
  PauseControl* pauses_ = nullptr;  // buffer_'s, where there is PFC
  // What control has sent ahead of waiting data, less what it may: a byte of control adds
  // kWholeShare - control_share_, a byte of data takes control_share_ off.
  std::int64_t control_credit_ = 0;
  std::uint64_t data_limit_ = 0;     // config_'s
  std::array<PacketFifo, kQueueClasses> queues_;
  std::uint64_t ecn_low_ = 0, ecn_high_ = 0;            // config_'s
  std::uint64_t control_bytes_ = 0, control_limit_ = 0;  // config_'s
  std::int64_t control_share_;                           // config_'s, of kWholeShare
  RandomStream random_;
  LinkConfig config_;
  mutable LinkCounters counters_;  // but for what was delivered
  PacketPool& pool_;
  Tap* tap_ = nullptr;
  std::uint32_t number_ = 0;
  Picoseconds pause_end_{}, paused_since_{}, paused_time_{};
  Domain from_;          // the sending node
  ObjectId sender_ = 0;  // this in events of the sending node, once there are any
  Picoseconds departure_ = kNever;  // of the last packet there is a departure event for
  LossProcess loss_;
  Impairment impairment_;
};

}  // namespace loomnet
