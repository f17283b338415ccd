// What InaTransport keeps of a queue pair and of a request; included by its sources alone.
#pragma once

#include <deque>

#include "transport/ina/ina_transport.hpp"

namespace loomnet::ina {

struct InaTransport::Request {
  WorkRequest request;
  Sequence first = 0;  // fragment; known once one is submitted
  std::uint32_t fragments = 0, submitted = 0, held = 0;
  Status status = Status::ok;

  std::uint32_t value_bytes() const { return request.length - request.framing; }
};

struct InaTransport::Member {
  QpNumber qp = 0;
  std::uint32_t flow = 0;
  std::uint32_t window = 1;  // fragments
  Ipv6Address source{}, destination{};
  std::uint16_t source_port = 0;
  std::vector<PlanePort> ports;  // of its trees: fragment n travels by number n mod trees
  std::variant<std::monostate, Worker, SwitchMlWorker> worker;
  std::unique_ptr<ParameterServer> server;
  // Of a server: the port by which each worker's last RESEND came, where its answers go.
  std::array<PlanePort, AGGREGATE_MAX_WORKERS> asked_by{};
  // Where the tree's root answers, a worker may be asked for its part after the result has come and the
  // request is complete (W6): copies of the last fragments, by number modulo their count.
  std::vector<std::uint8_t> kept;
  std::deque<Request> requests;  // from the oldest that is not complete
  std::size_t feeding = 0;       // of `requests`: the first not submitted to its end

  template <typename Visit>
  auto each(Visit&& visit) {
    if (server) return visit(*server);
    if (auto* w = std::get_if<Worker>(&worker)) return visit(*w);
    return visit(std::get<SwitchMlWorker>(worker));
  }
  template <typename Visit>
  auto each_worker(Visit&& visit) {
    if (auto* w = std::get_if<Worker>(&worker)) return visit(*w);
    return visit(std::get<SwitchMlWorker>(worker));
  }
  bool wants() {
    return each([](auto& m) { return m.wants(); });
  }
  PlanePort port_of(Sequence n) const { return ports[static_cast<std::uint64_t>(n) % ports.size()]; }
  Request* request_of(Sequence n) {
    for (Request& r : requests) {
      if (r.submitted > 0 && n >= r.first && n < r.first + r.submitted) return &r;
    }
    return nullptr;
  }
};

}  // namespace loomnet::ina
