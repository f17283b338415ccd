// What the queue pairs and peers of one NIC share.
#pragma once

#include <memory>

#include "transport/mrc/control.hpp"
#include "transport/mrc/counters.hpp"
#include "transport/mrc/options.hpp"
#include "transport/transport.hpp"

namespace loomnet::mrc {

struct Context {
  Context(std::shared_ptr<const MrcOptions> shared, TransportSink& sink)
      : options(*shared), sink(&sink), owner(std::move(shared)) {}

  const MrcOptions& options;  // one object for NICs alike, so that it stays in the nearest caches
  TransportSink* sink;
  PlaneMask own_up = 0;  // carrier of our ports
  PlaneMask ports = 0;   // ports there are
  PlaneMask wake = 0;    // ports to report ready after the current call
  std::array<ControlQueue, kMaxPlanes> control;  // class 0: SACK, NACK, NAK, answers, port status
  std::array<ControlQueue, kMaxPlanes> probes;   // class 1: EV and reliability probes
  Counters counters;
  std::shared_ptr<const MrcOptions> owner;
  CongestionMake congestion;

  void count(Count c, std::uint64_t n = 1) { counters.add(c, n); }
  void event(EventKind kind, QpNumber qp, std::uint32_t value, Picoseconds now, Picoseconds waited = {}) {
    sink->event({kind, qp, value, now, waited});
  }
  Picoseconds probes_free{};  // when a peer may send the next probe of a reverse path; all peers share it
  void push_control(PlanePort plane, const Control& c) { push(control[plane], plane, c); }
  void push_probe(PlanePort plane, const Control& c) { push(probes[plane], plane, c); }

 private:
  void push(ControlQueue& queue, PlanePort plane, const Control& c) {
    if (!queue.push(c)) return count(Count::drop_control_overflow);
    wake = static_cast<PlaneMask>(wake | 1u << plane);
  }
};

}  // namespace loomnet::mrc
