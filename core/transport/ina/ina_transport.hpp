// The transport of in-network aggregation: a NIC's members of aggregation trees. A queue pair is one
// job's worker, or its parameter server. A worker writes its part of a sum; the transport writes the whole sum
// into the same worker's memory, where the request's remote key and address say.
//
// A request is `framing` bytes and then int32 values. Its fragments take the values in order. With framing
// each fragment has an exponent in it, a byte of the framing in order (int8; kNotFinite: NaN or infinity):
// the result has in its place the largest of all workers'. A request of framing alone is one of fragments
// that carry exponents and no values. An immediate other than 0 says that the request goes on with the tensor of
// the one before.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "packet/udp.hpp"
#include "transport/ina/parameter_server.hpp"
#include "transport/ina/switchml_worker.hpp"
#include "transport/ina/wire.hpp"
#include "transport/ina/worker.hpp"
#include "transport/number_index.hpp"
#include "transport/ring.hpp"
#include "transport/timer_heap.hpp"
#include "transport/transport.hpp"

namespace loomnet::ina {

// In place of an exponent: in a request the block holds NaN or infinity; in a result some worker's did.
inline constexpr std::int8_t kNotFinite = -128;
// In a result alone: an addition left the range of an int32.
inline constexpr std::int8_t kOverflowed = -127;

class InaTransport final : public Transport {
 public:
  // The options hold for all jobs of the NIC but for what its QpConfig::group says.
  InaTransport(TransportSink& sink, const InaOptions& options, std::size_t ports, std::uint64_t seed);
  ~InaTransport() override;

  std::string_view name() const override { return "ina"; }
  FrameProtocol protocol() const override { return {kNextHeaderUdp, AGGREGATE_UDP_PORT}; }
  // Needs QpConfig::group. A worker's destination is the server's host.
  void connect(const QpConfig& config, Picoseconds now) override;
  // Of workers. Throws std::invalid_argument for a length that its framing does not fit.
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) override;
  void on_packet(PlanePort port, PacketPtr packet, Picoseconds now) override;
  void on_port(PlanePort port, bool up, Picoseconds now) override;
  void on_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) override;
  void on_trees(QpNumber qp, std::vector<std::vector<std::uint16_t>> trees, Picoseconds now) override;
  void on_deadline(Picoseconds now) override;
  Pulled pull(PlanePort port, QueueClass queue, Picoseconds now) override;
  Picoseconds next_deadline() const override { return deadlines_.next(); }
  bool outstanding() const override { return open_ > 0; }
  std::size_t held() const override;
  void release() override;
  void counters(std::vector<TransportCounter>& out) const override;
  TransportFigures figures() const override;
  void state(QpNumber qp, std::size_t part, Observer& out) const override;

 private:
  struct Request;
  struct Member;
  Member& member(QpNumber qp);
  std::vector<PlanePort> ports_of(const std::vector<PlanePaths>& planes) const;
  // A packet for the member of that index.
  void deliver(std::uint32_t at, PlanePort port, const aggregate_header& header, std::span<const std::uint8_t> payload,
               Picoseconds now);
  Bytes keep(Member& m, Sequence n, Bytes values);
  void feed(Member& m);
  void take(Member& m, const Received& got);
  void placed(Request& r, bool ok);
  void finish(Member& m);
  // Lets the member's next packets out, as far as their ports take them.
  void stage(Member& m, Picoseconds now);
  PacketPtr packet_of(Member& m, const Outgoing& out);
  // The port that a packet leaves by; changes a worker's DATA into a RESEND where it is not its tree's.
  std::optional<PlanePort> route(const Member& m, Outgoing& out) const;
  void settle(Member& m, std::uint32_t index, Picoseconds now);

  TransportSink& sink_;
  const InaOptions options_;
  const std::size_t ports_;
  const std::uint64_t seed_;
  std::uint32_t up_;  // ports with carrier
  NumberIndex by_number_;
  NumberIndex by_job_;  // job << 1 | 1 for a server
  std::vector<std::unique_ptr<Member>> members_;
  std::array<Ring<PacketPtr>, kMaxPlanes> control_, data_;  // of a port, ready to leave
  TimerHeap deadlines_;  // by member
  std::size_t open_ = 0;  // requests
  std::uint64_t drop_format_ = 0, drop_group_ = 0, drop_no_port_ = 0, place_refused_ = 0;
};

}  // namespace loomnet::ina
