// MRC on one NIC: its queue pairs, peers, port scheduling and timers, behind the Transport
// contract. OCP MRC 1.0.
#pragma once

#include <memory>

#include "packet/ipv6.hpp"
#include "transport/mrc/receiver.hpp"
#include "transport/mrc/sender.hpp"
#include "transport/mrc/timer_heap.hpp"
#include "transport/number_index.hpp"
#include "transport/transport.hpp"

namespace loomnet::mrc {

class MrcTransport final : public Transport {
 public:
  // Throws std::invalid_argument naming the field.
  MrcTransport(const MrcOptions& options, TransportSink& sink, std::size_t ports);

  std::string_view name() const override { return "mrc"; }
  FrameProtocol protocol() const override { return {kNextHeaderUdp, context_.options.udp_port}; }
  void connect(const QpConfig& config, Picoseconds now) override;
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) override;
  void on_packet(PlanePort port, PacketPtr packet, Picoseconds now) override;
  void on_port(PlanePort port, bool up, Picoseconds now) override;
  // Paths belong to the peer: all queue pairs to the same host follow. What a path has shown so far is
  // kept for planes whose entry is the same as before.
  void on_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) override;
  void on_limits(QpNumber qp, std::size_t part, const LimitsSet& set, Picoseconds now) override;
  void on_deadline(Picoseconds now) override;
  Pulled pull(PlanePort port, QueueClass queue, Picoseconds now) override;
  Picoseconds next_deadline() const override { return timers_.next(); }
  bool outstanding() const override { return outstanding_ > 0; }
  // Counts, then two gauges over all queue pairs: entropy values in rotation on live planes, of all
  // that have a slot.
  void counters(std::vector<TransportCounter>& out) const override;
  TransportFigures figures() const override;
  void state(QpNumber qp, std::size_t part, Observer& out) const override;
  std::uint64_t acked(QpNumber qp, std::size_t part) const override;
  void prepare(Upcoming call, PlanePort port) const override;

  std::uint64_t counter(Count c) const { return context_.counters.get(c); }
  // For controllers and tests; throw std::out_of_range for an unknown queue pair.
  const Sender& sender(QpNumber qp) const { return qps_.at(find(qp))->sender; }
  const Receiver& receiver(QpNumber qp) const { return qps_.at(find(qp))->receiver; }
  // Takes an entropy value out of rotation until it is allowed again (Clustermapper's denylist).
  // False where the queue pair has no such value, or would keep less than its floor.
  bool deny(QpNumber qp, EntropyValue ev, bool denied, Picoseconds now);

 private:
  struct QueuePair {
    QueuePair(Context& context, Peer& peer, std::uint32_t peer_index, const QpConfig& config, std::uint32_t index,
              Picoseconds now)
        : peer(peer),
          peer_index(peer_index),
          sender(context, peer, config, index, now),
          receiver(context, peer, config.local, index) {}
    Peer& peer;
    std::uint32_t peer_index;
    std::uint32_t next_ready = 0, previous_ready = 0;  // ring of READY queue pairs
    bool listed = false, counted = false;
    Sender sender;
    Receiver receiver;
  };
  // A port is free when its last pull found nothing; asked when it was told of data since.
  struct Port {
    enum class State : std::uint8_t { idle, asked, busy } state = State::idle;
    Picoseconds asked_at{-1};
  };
  static constexpr std::uint32_t kNone = ~0u;

  std::size_t find(QpNumber qp) const;
  Pulled pull_data(PlanePort port, Picoseconds now);
  PacketPtr pull_control(PlanePort port, ControlQueue& queue, Picoseconds now);
  PacketPtr endpoint_packet(PlanePort port, const Control& control, Picoseconds now);
  PacketPtr qp_packet(PlanePort port, const Control& control, Picoseconds now, bool& again);
  void on_endpoint(PlanePort port, const Inbound& in, Picoseconds now);
  void on_queue_pair(const Inbound& in, const Payload& payload, Picoseconds now);
  void move_control(PlanePort from, Picoseconds now);

  // Ends every call: lists, timers and port wake-ups follow what changed.
  void settle(std::uint32_t qp);
  void settle_peer(std::uint32_t peer, Picoseconds now);
  void wake(Picoseconds now, PlaneMask except = 0);
  void list(std::uint32_t qp);
  void unlist(std::uint32_t qp);

  // The queue pairs last sent from and received for, and where their next call will look: what
  // prepare() fetches, read for nothing else.
  struct Recent {
    const QueuePair* sending = nullptr;
    const Peer* sending_to = nullptr;
    const QueuePair* receiving = nullptr;
    const Peer* receiving_from = nullptr;
    Sender::Places sender{};
    Receiver::Places receiver{};
  } recent_;
  std::vector<std::unique_ptr<QueuePair>> qps_;
  NumberIndex by_number_;        // QpNumber
  std::uint32_t ready_ = kNone;  // whose turn it is
  std::uint32_t port_count_;
  TimerHeap timers_;  // ids: 2 * queue pair, 2 * peer + 1
  std::size_t ready_count_ = 0;
  std::size_t outstanding_ = 0;  // queue pairs with unfinished requests
  std::array<Port, kMaxPlanes> ports_{};
  Context context_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::vector<std::uint32_t>> peer_qps_;
  NumberIndex by_host_;  // HostId
};

}  // namespace loomnet::mrc
