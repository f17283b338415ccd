// TCP as a transport of the NIC contract: one established connection per queue pair, writes laid on
// its byte stream by a 32-byte frame header each, plain IPv6 by ECMP. It stands for a host's kernel
// TCP bound to one address: the host's own multipath route picks the plane by the hash of the five
// tuples among ports with carrier (Linux fib_multipath_hash_policy 1, ignore_routes_with_linkdown),
// switches pick the rest. Nothing else reroutes: a plane that is dead further on stays chosen.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/tcp/counters.hpp"
#include "transport/tcp/options.hpp"
#include "transport/tcp/packet_format.hpp"
#include "transport/tcp/reassembly.hpp"
#include "transport/tcp/sender.hpp"
#include "transport/tcp/stream_reader.hpp"
#include "transport/timer_heap.hpp"
#include "transport/transport.hpp"

namespace loomnet::tcp {

class TcpTransport final : public Transport {
 public:
  // Throws std::invalid_argument naming the option that is out of range.
  TcpTransport(TransportSink& sink, const TcpOptions& options = {});
  ~TcpTransport() override;

  std::string_view name() const override { return "tcp"; }
  FrameProtocol protocol() const override { return {kNextHeaderTcp, 0}; }
  void connect(const QpConfig& config, Picoseconds now) override;
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) override;
  void on_packet(PlanePort port, PacketPtr packet, Picoseconds now) override;
  void on_port(PlanePort port, bool up, Picoseconds now) override;
  // The host's route leads over the planes that have a path; the five tuples, and with them the choice of
  // the switches, stay.
  void on_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) override;
  bool ahead(QpNumber qp) override;
  void on_limits(QpNumber qp, std::size_t part, const LimitsSet& set, Picoseconds now) override;
  Pupil* pupil(QpNumber qp, std::size_t) override { return sender(qp).control().pupil(); }
  void on_deadline(Picoseconds now) override;
  Pulled pull(PlanePort port, QueueClass queue, Picoseconds now) override;
  Picoseconds next_deadline() const override { return timers_.next(); }
  bool outstanding() const override { return open_messages_ > 0; }
  std::size_t held() const override;
  void release() override;
  void counters(std::vector<TransportCounter>& out) const override { counters_.list(out); }

  TransportFigures figures() const override;
  void state(QpNumber qp, std::size_t part, Observer& out) const override;
  std::uint64_t acked(QpNumber qp, std::size_t) const override { return sender(qp).acked(); }

  const TcpOptions& options() const { return options_; }
  // The sending half of a queue pair, for tests and controllers. Throws std::out_of_range.
  Sender& sender(QpNumber qp);
  const Sender& sender(QpNumber qp) const;
  // The port a queue pair sends by now; 0xff where none has carrier.
  PlanePort port_of_connection(QpNumber qp) const;

 private:
  struct Connection;
  static constexpr PlanePort kNoPort = 0xff;
  // Connections of one port that have something to send, served in turn, and those that wait for
  // their pacing.
  struct Port {
    bool up = true;
    Connection* head = nullptr;
    Connection* tail = nullptr;
    TimerHeap paced;
  };

  static std::uint64_t key(HostId peer, std::uint16_t local, std::uint16_t remote) {
    return std::uint64_t{peer} << 32 | std::uint32_t{local} << 16 | remote;
  }
  static std::uint8_t routed(const std::vector<PlanePaths>& planes);
  PlanePort choose_port(const Connection& c) const;
  void reroute(Picoseconds now);
  void enqueue(Connection& c);
  void settle(Connection& c, Picoseconds now);  // after anything happened to it
  // Tells the NIC that a port has work; not while the NIC is pulling, which asks again by itself.
  void announce(PlanePort port) {
    if (!pulling_) sink_.port_ready(port);
  }
  bool has_control(const Connection& c) const;

  Pulled pull_from(Port& port, Picoseconds now);
  PacketPtr next_packet(Connection& c, Picoseconds now);
  PacketPtr data_packet(Connection& c, Picoseconds now);
  PacketPtr ack_packet(Connection& c, Picoseconds now);
  PacketPtr reset_packet(Connection& c, Picoseconds now);
  PacketPtr handshake_packet(Connection& c, Picoseconds now);
  PacketPtr build(const Connection& c, TcpHeader header, const AckContent& ack, std::uint32_t stream_bytes, bool ect,
                  Picoseconds now);

  Connection* find(const Received& r, PlanePort port);
  void on_handshake(Connection& c, const Received& r, Picoseconds now);
  void on_reset(Connection& c, const Received& r, const Packet& packet, Picoseconds now);
  void on_segment(Connection& c, const Received& r, PacketPtr packet, Picoseconds now);
  bool deliver(Connection& c, const Packet& packet, std::uint16_t header_end, std::uint32_t skip, std::uint32_t length,
               Picoseconds now);
  void complete(Connection& c);
  void fail(Connection& c, Status status, Picoseconds now);

  TransportSink& sink_;
  const TcpOptions options_;
  CongestionMake control_;
  std::uint8_t window_scale_ = 0;
  Counters counters_;
  std::vector<std::unique_ptr<Connection>> connections_;  // index = owner in the timer heaps
  std::unordered_map<QpNumber, Connection*> by_qp_;
  std::unordered_map<std::uint64_t, Connection*> by_tuple_;
  std::array<Port, kMaxPlanes> ports_;
  TimerHeap timers_;
  std::size_t open_messages_ = 0;
  bool pulling_ = false;
};

}  // namespace loomnet::tcp
