// The few sums over a whole run that figures and progress lines need, cheap enough to take often.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/network.hpp"

namespace loomnet {

struct RunCounters {
  std::uint64_t lost = 0;           // packets dropped by links and panels
  std::uint64_t retransmitted = 0;  // by the transports of the hosts asked for
  std::uint64_t readmitted = 0;     // paths that came back
  std::uint64_t timeouts = 0;       // retransmission timeouts that ran out at these hosts
  std::uint64_t payload = 0;        // bytes that reached these hosts: what stands still in a stall
  bool working = false;             // one of these hosts has an operation under way
  // The time of the last payload, or if that is later: of the begin of the outstanding work, or where none is
  // outstanding, of the last work's end.
  Picoseconds quiet_since{};
  std::uint64_t finished = 0;       // operations that ended, well or not
  std::uint64_t paths_good = 0, paths_total = 0;
};

// `job`: payload, working and finished are that job's alone. What links and transports count is the
// run's: it has no job.
RunCounters run_counters(Network& network, std::span<const NodeId> hosts, std::optional<JobId> job = {});

}  // namespace loomnet
