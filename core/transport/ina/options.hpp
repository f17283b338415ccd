// Every constant of in-network aggregation's hosts in one place, with the published defaults. Sources:
// ESA (Wang et al., arXiv 2201.06398), ATP (Lao et al., NSDI 2021), SwitchML (Sapio et al., NSDI 2021);
// (ours) marks what no publication states.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"
#include "ebpf/aggregate_abi.h"
#include "transport/options.hpp"

namespace loomnet::ina {

// How a fragment gets the index of its slot. `rehash` (ATP): an index for each position of the window; the
// server replaces the index of a fragment that collided. `fixed`: the first index of a position stays.
// `sequence`: a hash of the sequence number.
enum class IndexPolicy : std::uint8_t { rehash, fixed, sequence };
// Where a RESULT is multicast: at the server, or at the tree's root for each sum that is whole there.
enum class ResultPath : std::uint8_t { server, root };

struct InaOptions {
  aggregate_scheme scheme = AGGREGATE_ESA;
  std::uint32_t values = 256;    // int32 of a packet: 64, 128 or 256 (ours)
  std::uint32_t window = 256;    // W, fragments; SwitchML: 256 outstanding packets per worker
  std::uint32_t pool = 4734;     // slots that indices spread over: 5 MB of 1,056 B (ATP: about 5 MB)
  IndexPolicy index_policy = IndexPolicy::rehash;  // ATP
  ResultPath result_path = ResultPath::server;     // ATP
  bool saturate = false;         // additions stop at the int32 range; must equal the switches' option
  std::int64_t first_sequence = 0;  // of the job's first fragment, the same on all hosts

  // --- workers of ATP and ESA ------------------------------------------------------------------
  Picoseconds rto_first = milliseconds(50);  // until a tensor's first result, for W fragments (ATP)
  Picoseconds rto_min = microseconds(200);   // ATP
  std::uint32_t rto_cap = 16;                // multiple of the fragment's first timeout (ours)
  double rto_jitter = 0.2;                   // of a restarted timeout, either way (ours)
  bool congestion_control = true;            // ATP; off: the window is cwnd_cap
  std::uint32_t cwnd_cap = 0;                // packets; 0: W. ATP: 100
  std::uint32_t cwnd_step_bytes = 1500;      // added for a window without a mark (ATP)
  // What a later result of the same tree has overtaken is sent again at once, and once (ATP). Under ESA,
  // whose paper says nothing of it, while results are known to be lost (ours).
  bool gap_repair = true;

  // --- parameter server --------------------------------------------------------------------------
  Picoseconds switch_rtt = microseconds(10);  // server to switch and back, idle: the first SRTT (ours)
  std::uint32_t remind_rtts = 16;             // smoothed round trips until the first reminder (ours)
  Picoseconds remind_min{};                   // least delay of a reminder (ours)
  std::uint32_t remind_cap = 16;              // multiple of the first delay (ours)
  std::uint32_t early_gap = 0;                // fragments; 0: max(3, W / 2) (ours)
  std::uint32_t nak_from = 2;                 // the reminder that a NAK goes with (ours)
  bool components = true;                     // false: one running sum per fragment (ours)

  // --- SwitchML --------------------------------------------------------------------------------------
  Picoseconds switchml_timeout = milliseconds(10);  // SwitchML
  std::uint32_t switchml_threshold = 100;  // timeouts until the first doubling, and the threshold's growth
  std::uint32_t switchml_threads = 4;      // of a worker: each counts the timeouts of its own slots
  bool switchml_slices = false;            // a tensor begins with the first timeout again (the DPDK client)

  // By name, with ranges. A run on the wall clock has rto_min 10 ms (SwitchML) and remind_min 2 ms.
  static const OptionTable<InaOptions>& table();
  const aggregate_policy& policy() const { return aggregate_policies[scheme]; }
  std::uint32_t most_cwnd() const { return cwnd_cap == 0 || cwnd_cap > window ? window : cwnd_cap; }
  std::uint32_t gap() const { return early_gap ? early_gap : window / 2 > 3 ? window / 2 : 3; }
};

// A job as its hosts see it.
struct InaJob {
  std::uint16_t job = 0;
  std::uint64_t workers = 0;         // bitmap
  // Numbers of the switches of each of its trees; fragment n travels by tree n mod their number.
  std::vector<std::vector<std::uint16_t>> trees{};
};

// Throws std::invalid_argument naming the field and its range.
void check(const InaOptions& options);
void check(const InaJob& job, const InaOptions& options);

}  // namespace loomnet::ina
