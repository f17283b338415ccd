// A NIC's transfers as fluid flows. A queue pair's requests are cut into parts, one for each port of the NIC by which
// the queue pair has a path; at each port their parts follow one another.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fluid/fluid_fabric.hpp"
#include "transport/number_index.hpp"
#include "transport/ring.hpp"
#include "transport/transport.hpp"

namespace loomnet::fluid {

class FluidTransport final : public Transport, private FluidNetwork::Sink {
 public:
  FluidTransport(FluidFabric& fabric, NodeId node, TransportSink& sink, std::string name, const Frames& frames);

  std::string_view name() const override { return name_; }
  void connect(const QpConfig& config, Picoseconds now) override;
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) override;
  void on_packet(PlanePort, PacketPtr, Picoseconds) override {}  // never called: there are none
  void on_port(PlanePort, bool, Picoseconds) override {}         // a link without carrier has no rate
  void on_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) override;
  void on_renew(QpNumber qp, Picoseconds now) override;
  void on_deadline(Picoseconds now) override;
  Pulled pull(PlanePort, QueueClass, Picoseconds) override { return Pulled::idle(); }
  Picoseconds next_deadline() const override { return due_.empty() ? kNever : due_.front().at; }
  bool outstanding() const override { return open_ > 0; }
  void counters(std::vector<TransportCounter>& out) const override;

  // The network has changed: looks for the routes of all queue pairs, or of those that have this port.
  void find_routes();
  void find_routes(PlanePort port);
  // Routes are looked for again when their next flows begin.
  void forget_routes();

 private:
  struct Part {
    PlanePort port = 0;
    bool known = false;    // `route` is the network's present one
    bool flowing = false;
    FlowId flow;
    Picoseconds latency{}, answer{};  // Route's, of the bytes that flow
    std::uint64_t write = 0;  // number of the write that it carries, or will next
    std::uint64_t left = 0;   // bytes on the wire that wait for a whole route; only while not flowing
    std::uint64_t bytes = 0;  // on the wire, of the write's part
    std::uint64_t last = 0;   // of these, the last packet
    Route route;
  };
  struct Write {
    WorkRequest request;
    bool cut = false;                                // into the parts of now
    std::uint32_t parts_open = 0;                    // that have not left, once it is cut
    std::array<std::uint64_t, kMaxPlanes> shares{};  // bytes on the wire of parts that have not begun
    std::uint64_t interrupted = 0;  // bytes on the wire to be cut anew; 0: the whole write
    bool again = false;             // it was interrupted: its parts are no longer those of the transport
    Picoseconds arrives{};          // its last byte, as far as parts have left
    Picoseconds answered{};         // and when the sender has all of their acknowledgements
  };
  struct QueuePair {
    QpNumber local = 0, remote = 0;
    HostId destination = 0;
    std::uint32_t rerouted = 0;
    bool refused = false;  // the far side refused a write: it takes no more
    bool failed = false;   // and the answer is here
    std::uint8_t ports = 0;          // how many there are
    std::uint8_t with_path = 0;      // a bit for each by which there is a path
    FluidTransport* far = nullptr;   // where it leads, once that is known
    std::vector<Part> parts;         // one for each port with a path, or for one of them
    Ring<Write, 2> writes;           // not completed, in order
    std::uint64_t first = 0;         // number of the first of them, counted from 0
    std::uint64_t leaving = 0;       // number of the first of which a part has not left
    Picoseconds arrives{};           // when the last byte of the write before that arrives
    Picoseconds answered{};          // and when the sender hears of it
    Write& write(std::uint64_t number) { return writes[number - first]; }
    std::uint64_t end() const { return first + writes.size(); }
    bool leads_by(PlanePort port) const { return (with_path >> port & 1) != 0; }
  };
  // What happens at this NIC later: a write's bytes are in place, or its sender hears so.
  struct Due {
    Picoseconds at{};
    std::uint64_t order = 0;
    std::uint32_t index = 0;  // arrival: of the sender's queue pair; else of our own
    FluidTransport* from = nullptr;  // null: an answer to our own queue pair
    WorkRequest write;
    QpNumber qp = 0;  // arrival: here
    Status status = Status::ok;
    Picoseconds answer{};  // arrival: from then on to the sender's completion
    bool operator<(const Due& other) const {  // a heap with the earliest on top
      return at > other.at || (at == other.at && order > other.order);
    }
  };
  void finished(FlowId flow, std::uint64_t cookie, Picoseconds now) override;
  void make_parts(QueuePair& qp);
  void begin(std::uint32_t index, Picoseconds now);
  void cut(QueuePair& qp, Write& write) const;
  void flow(std::uint32_t index, std::size_t part);
  void take_paths(std::uint32_t index, const std::vector<PlanePaths>& planes);
  Route find_route(const QueuePair& qp, std::size_t number, PlanePort port);
  void take_route(Part& part, Route route);
  void part_left(std::uint32_t index, Part& part, Picoseconds now);
  void write_left(std::uint32_t index, Picoseconds now);
  void find_routes(std::uint32_t index, const PlanePort* port);
  void expect(Due due);
  void arrive(const Due& due);
  void answer(const Due& due);
  void complete(QueuePair& qp, Status status);

  FluidFabric& fabric_;
  NodeId node_;
  TransportSink& sink_;
  std::string name_;
  Frames frames_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  std::vector<std::uint8_t> with_path_;  // theirs: a circuit concerns few queue pairs of many
  NumberIndex by_number_;
  std::vector<Due> due_;
  std::uint64_t order_ = 0;
  std::size_t open_ = 0;
  std::uint64_t writes_ = 0, bytes_ = 0, failed_ = 0, access_errors_ = 0;
};

}  // namespace loomnet::fluid
