// Frames that carry a step header, the golden vectors of the algorithm, and a half-link's hook with its
// rows for tests of the symphony program.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ebpf/symphony_abi.h"
#include "link/egress_hook.hpp"
#include "switch/program.hpp"
#include "switch_forward/test_frames.hpp"

namespace loomnet::test {

enum class Ecn2 : std::uint8_t { not_ect = 0, ect = 2, ce = 3 };

inline std::vector<std::uint8_t> step_bytes(const step_header& step) {
  std::vector<std::uint8_t> out(STEP_HEADER_BYTES);
  step_header_store(out.data(), &step);
  return out;
}

// UDP to the step header's port, the header, and some payload.
inline std::vector<std::uint8_t> step_udp(const step_header& step, std::size_t payload = 32) {
  std::vector<std::uint8_t> out(8);
  ln_store_be16(out.data(), 50'000);
  ln_store_be16(out.data() + 2, STEP_UDP_PORT);
  ln_store_be16(out.data() + 4, static_cast<std::uint16_t>(8 + STEP_HEADER_BYTES + payload));
  const auto header = step_bytes(step);
  out.insert(out.end(), header.begin(), header.end());
  out.resize(out.size() + payload, 0x5a);
  return out;
}

inline std::vector<std::uint8_t> step_frame(const step_header& step, Ecn2 ecn = Ecn2::ect, std::size_t payload = 32) {
  FrameSpec spec;
  spec.destination = address("fd00::2");
  spec.next_header = kNextHeaderUdp;
  spec.traffic_class = static_cast<std::uint8_t>(ecn);
  spec.payload = step_udp(step, payload);
  return frame(spec);
}

// What a hook is told beside the frame.
struct Leaving {
  std::int64_t ns = 0;
  std::uint32_t waiting = 3;  // packets of its class behind it, of 1,000 bytes
  bool ce = false;
  bool own = false;  // of `ce`: by the port's own rule, and it came without
};

// A hook and the last thing that it said.
struct HookBench {
  explicit HookBench(SwitchProgram& of, std::uint16_t port = 1, std::uint64_t seed = 99)
      : program(of), hook(of.make_egress({5, port}, seed)) {}
  EgressVerdict verdict(std::vector<std::uint8_t> frame, const Leaving& leaving) {
    std::array<QueuedClass, kQueueClasses> queued{};
    queued[kDataClass] = {leaving.waiting * 1000u, leaving.waiting};
    queued[kControlClass] = {640, 10};  // opens no gate
    return hook->dequeue(frame, {nanoseconds(leaving.ns), static_cast<std::uint32_t>(frame.size()), kDataClass,
                                 leaving.ce, queued, leaving.own});
  }
  EgressVerdict verdict(const step_header& step, const Leaving& leaving) {
    return verdict(step_frame(step, leaving.ce ? Ecn2::ce : Ecn2::ect), leaving);
  }
  bool marks(std::vector<std::uint8_t> frame, const Leaving& leaving) {
    return verdict(std::move(frame), leaving) == EgressVerdict::mark;
  }
  bool marks(const step_header& step, const Leaving& leaving) {
    return marks(step_frame(step, leaving.ce ? Ecn2::ce : Ecn2::ect), leaving);
  }
  std::uint64_t counter(std::string_view name) const {
    std::vector<SwitchCounter> all;
    program.egress_counters(all);
    for (const SwitchCounter& each : all) {
      if (each.name == name) return each.value;
    }
    throw std::out_of_range(std::string(name));
  }
  std::uint32_t noted(symphony_note which) const { return hook->note().values[which]; }

  SwitchProgram& program;
  std::unique_ptr<EgressHook> hook;
};

// The row of a ring in a snapshot; one of zeros where there is none.
inline symphony_row row_of(const std::vector<StateSnapshot>& snapshot, std::uint16_t job, std::uint16_t ring) {
  symphony_row row{};
  const StateSnapshot& rings = snapshot.at(0);
  for (std::size_t i = 0; i < rings.layout.rows; ++i) {
    std::memcpy(&row, rings.bytes.data() + i * sizeof row, sizeof row);
    if (row.state & SYMPHONY_RING && row.job == job && row.ring == ring) return row;
  }
  return {};
}

inline symphony_tally tally_of(const std::vector<StateSnapshot>& snapshot, std::uint16_t job) {
  symphony_tally row{};
  const StateSnapshot& jobs = snapshot.at(1);
  for (std::size_t i = 0; i < jobs.layout.rows; ++i) {
    std::memcpy(&row, jobs.bytes.data() + i * sizeof row, sizeof row);
    if (row.used && row.job == job) return row;
  }
  return {};
}

// The golden vectors: mode spaced, shift 17, defaults, egress 1, job 7, 8 ranks. `low` and `owner` are
// the row's after the packet.
struct StepVector {
  int number;
  std::int64_t ns;
  std::uint16_t ring;
  std::uint8_t gen;
  std::uint16_t rank;
  std::uint32_t prog;
  std::uint8_t flags;
  std::uint32_t waiting;
  bool ce, extra;
  std::uint32_t low;
  std::uint16_t owner;
  bool enabled = true;
};
inline const std::vector<StepVector>& step_vectors() {
  constexpr std::uint8_t L = STEP_FLAG_LAST, C = STEP_FLAG_OTHER;
  constexpr std::uint16_t none = SYMPHONY_NONE;
  static const std::vector<StepVector> all = {
      {1, 0, 0, 5, 0, 0xFFFE0000, 0, 3, false, false, 0xFFFE0000, 0},
      {2, 1000, 0, 5, 1, 0xFFFE8000, 0, 3, false, false, 0xFFFE0000, 0},
      {3, 2000, 0, 5, 1, 0x00000000, 0, 3, false, false, 0xFFFE0000, 0},
      {4, 262144, 0, 5, 0, 0xFFFE4000, 0, 3, false, false, 0xFFFE4000, 0},
      {5, 263144, 0, 5, 1, 0x00010000, 0, 3, false, true, 0xFFFE4000, 0},
      {6, 264144, 0, 5, 1, 0x00010040, 0, 3, false, false, 0xFFFE4000, 0},
      {7, 393216, 0, 5, 1, 0x00010080, 0, 0, false, false, 0xFFFE4000, 0},
      {8, 393716, 0, 5, 1, 0x000100C0, 0, 3, true, false, 0xFFFE4000, 0},
      {9, 394216, 0, 5, 0, 0xFFFEFFC0, L, 3, false, false, 0xFFFEFFC0, none},
      {10, 395216, 0, 5, 1, 0x00010100, 0, 3, false, false, 0x00010100, 1},
      {11, 396216, 0, 5, 2, 0xFFFE8000, 0, 3, false, false, 0xFFFE8000, 2},
      {12, 397216, 0, 5, 1, 0x00010140, 0, 3, false, true, 0xFFFE8000, 2},
      {13, 658360, 0, 5, 1, 0x00010180, 0, 3, false, false, 0x00010180, 1},
      {14, 659360, 0, 5, 2, 0xFFFF0000, 0, 3, false, false, 0xFFFF0000, 2},
      {15, 660360, 0, 5, 1, 0x000101C0, C, 3, false, false, 0xFFFF0000, 2},
      {16, 661360, 1, 5, 1, 0x00010200, 0, 3, false, false, 0x00010200, 1},
      {17, 662360, 0, 5, 1, 0x00010240, 0, 3, false, true, 0xFFFF0000, 2},
      {18, 663360, 0, 5, 0, 0x00C80000, 0, 3, false, false, 0x00C80000, 0},
      {19, 664360, 0, 6, 0, 0x00000000, 0, 3, false, false, 0x00000000, 0},
      {20, 665360, 0, 6, 3, 0x00000000, 0, 3, false, false, 0x00000000, 0},
      {21, 666360, 0, 6, 3, 0x00090000, 0, 3, false, false, 0x00000000, 0, false},
      {22, 1074409184, 0, 6, 3, 0x00050000, 0, 3, false, false, 0x00050000, 3},
  };
  return all;
}
inline step_header step_of(const StepVector& v) { return {v.flags, v.gen, 7, v.ring, v.rank, 8, v.prog}; }

}  // namespace loomnet::test
