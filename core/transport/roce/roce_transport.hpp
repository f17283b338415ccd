// RoCE baseline: reliable connections with go-back-N over RoCEv2, one RC queue pair per plane under
// each user-level connection, ECMP by the queue pair's own UDP source port.
// InfiniBand Architecture Vol. 1, chapter 9.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "packet/udp.hpp"
#include "transport/number_index.hpp"
#include "transport/roce/deadlines.hpp"
#include "transport/roce/options.hpp"
#include "transport/roce/packet_format.hpp"
#include "transport/roce/requester.hpp"
#include "transport/roce/responder.hpp"
#include "transport/timer_heap.hpp"
#include "transport/transport.hpp"

namespace loomnet::roce {

// A message is striped evenly over the ports that have a path (NCCL does so over the NICs of a merged
// device) and complete when every part is. Part k goes by the k-th of them in the order of their planes,
// which is the peer's order too. Every part of a write-with-immediate carries the immediate, an empty
// part too. Immediate k of each plane belongs to message k of those; the message is complete when
// immediate k has come on every plane.
class RoceTransport final : public Transport {
 public:
  // Throws std::invalid_argument naming the option that is out of range.
  RoceTransport(TransportSink& sink, const RoceOptions& options = {});
  ~RoceTransport() override;

  std::string_view name() const override { return "roce"; }
  FrameProtocol protocol() const override { return {kNextHeaderUdp, kUdpPortRoceV2}; }
  void connect(const QpConfig& config, Picoseconds now) override;
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) override;
  void on_packet(PlanePort port, PacketPtr packet, Picoseconds now) override;
  void on_port(PlanePort port, bool up, Picoseconds now) override;
  // Every queue pair draws another source port, so that ECMP may choose another path, and may leave by
  // another port. As many ports as before have a path, or none: then requests wait, and packets under
  // way are lost when the retries have run out.
  void on_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) override;
  void on_renew(QpNumber qp, Picoseconds now) override;
  void on_limits(QpNumber qp, std::size_t part, const LimitsSet& set, Picoseconds now) override;
  void on_deadline(Picoseconds now) override;
  Pulled pull(PlanePort port, QueueClass queue, Picoseconds now) override;
  Picoseconds next_deadline() const override { return std::min(deadlines_.next(), ticks_.next()); }
  bool outstanding() const override { return open_messages_ > 0; }
  void counters(std::vector<TransportCounter>& out) const override;
  TransportFigures figures() const override;
  std::size_t state_parts(QpNumber qp) const override;  // one per plane
  void state(QpNumber qp, std::size_t part, Observer& out) const override;
  std::uint64_t acked(QpNumber qp, std::size_t part) const override;
  void prepare(Upcoming call, PlanePort port) const override;

  const RoceOptions& options() const { return options_; }
  // Memory that one idle connection over `planes` planes takes.
  static std::size_t idle_bytes(std::size_t planes);

 private:
  struct Counters;
  struct Connection;
  struct QueuePair;
  struct Regulator;  // congestion control of one queue pair
  // Queue pairs of one port that have something of one kind to send, served in turn; each kind has
  // members of its own that chain them.
  struct ReadyList {
    QueuePair* head = nullptr;
    QueuePair* tail = nullptr;
  };
  template <auto kNext, auto kWaits>
  struct Chain;
  struct Answers;
  struct Data;
  struct Cnps;
  struct Port {
    bool up = true;
    ReadyList answers, data, cnps;
  };

  static constexpr PlanePort kNowhere = kMaxPlanes;
  static constexpr std::uint8_t kNoPart = 0xff;
  void address(QueuePair& qp, std::uint8_t part);
  std::uint32_t first_psn(HostId sender, HostId receiver, std::uint64_t queue_pair, std::uint32_t life) const;
  Connection* named(QpNumber number, const Received& packet);
  bool is_of_this_life(QueuePair& qp, const Received& packet);
  bool may_send(const QueuePair& qp, std::uint64_t window) const;
  bool in_turn(const QueuePair& qp) const;
  void turn(QueuePair& qp, const Attributes& next);
  // Gives each part its port. Throws std::invalid_argument.
  static void assign(Connection& c, const std::vector<PlanePaths>& paths);
  void requeue();
  void announce(PlanePort port) {
    if (port != kNowhere) sink_.port_ready(port);
  }
  void ready_data(QueuePair& qp, Picoseconds now);
  void ready_answer(QueuePair& qp);
  void start_timer(QueuePair& qp, Picoseconds now);
  PacketPtr data_packet(QueuePair& qp, Picoseconds now);
  PacketPtr answer_packet(QueuePair& qp);
  PacketPtr cnp_packet(QueuePair& qp);
  void notify_congestion(QueuePair& qp, Picoseconds now);
  // Packets that a queue pair may have unacknowledged.
  std::uint64_t window_of(const QueuePair& qp) const;
  void regulate(Regulator& regulator, std::uint64_t stream) const;
  void on_congestion(QueuePair& qp, Congestion kind, Picoseconds now);
  void on_sent(QueuePair& qp, const Segment& segment, std::uint32_t bytes, Picoseconds now);
  void on_progress(QueuePair& qp, std::uint64_t packets, const Received& answer, Picoseconds now);
  void watch_tick(QueuePair& qp);
  void run_ticks(Picoseconds now);
  Pulled pull_paced(Port& port, Picoseconds now);
  PacketPtr begin_packet(const QueuePair& qp, const Bth& bth, std::size_t extension, std::uint32_t payload,
                         std::uint8_t code, bool ect, std::size_t step = 0);
  void on_request(QueuePair& qp, const Received& received, const Packet& packet, Picoseconds now);
  void on_acknowledge(QueuePair& qp, const Received& received, Picoseconds now);
  bool place(QueuePair& qp, const Received& received, const Packet& packet);
  void deliver(Connection& connection, Picoseconds now);
  const Connection& connection(QpNumber qp) const;
  void part_done(Connection& connection, std::uint64_t message);
  void fail(Connection& connection, Status status, std::uint64_t message, Picoseconds now);

  TransportSink& sink_;
  const RoceOptions options_;
  const Picoseconds timeout_;
  const QueueClass answer_queue_;
  const std::uint64_t window_;  // packets
  CongestionMake control_;      // empty: none
  bool echoes_marks_ = false;   // acknowledgements say how many marks came, as the control needs
  std::unique_ptr<Counters> counters_;
  // The queue pairs of the connections last sent from and received for: what prepare() fetches,
  // read for nothing else.
  struct Recent {
    const QueuePair *sending = nullptr, *receiving = nullptr;
    const Connection *sending_for = nullptr, *receiving_for = nullptr;
  } recent_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by connect()
  NumberIndex by_number_;                                 // QpNumber
  std::array<Port, kMaxPlanes + 1> ports_;  // the last: of queue pairs without a path
  Deadlines<QueuePair> deadlines_;
  TimerHeap ticks_;                     // of congestion controls; owner = Regulator::index
  std::vector<QueuePair*> regulated_;  // by that index
  std::size_t queue_pairs_ = 0;
  QpNumber most_ = 0;  // of the numbers of connections
  std::size_t open_messages_ = 0;  // posted, not completed
};

}  // namespace loomnet::roce
