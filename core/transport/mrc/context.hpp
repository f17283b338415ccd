// What the queue pairs and peers of one NIC share.
#pragma once

#include "transport/mrc/control.hpp"
#include "transport/mrc/counters.hpp"
#include "transport/mrc/options.hpp"
#include "transport/transport.hpp"

namespace loomnet::mrc {

struct Context {
  MrcOptions options;
  TransportSink* sink = nullptr;
  Counters counters;
  std::array<ControlQueue, kMaxPlanes> control;  // class 0: SACK, NACK, NAK, answers, port status
  std::array<ControlQueue, kMaxPlanes> probes;   // class 1: EV and reliability probes
  PlaneMask own_up = 0;                          // carrier of our ports
  PlaneMask ports = 0;                           // ports there are
  PlaneMask wake = 0;                            // ports to report ready after the current call

  void count(Count c, std::uint64_t n = 1) { counters.add(c, n); }
  void event(EventKind kind, QpNumber qp, std::uint32_t value, Picoseconds now) {
    sink->event({kind, qp, value, now});
  }
  void push_control(PlanePort plane, const Control& c) { push(control[plane], plane, c); }
  void push_probe(PlanePort plane, const Control& c) { push(probes[plane], plane, c); }

 private:
  void push(ControlQueue& queue, PlanePort plane, const Control& c) {
    if (!queue.push(c)) return count(Count::drop_control_overflow);
    wake = static_cast<PlaneMask>(wake | 1u << plane);
  }
};

}  // namespace loomnet::mrc
