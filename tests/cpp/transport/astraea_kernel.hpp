// Flows of a kernel's TCP without a kernel: slots that are written as ebpf/astraea.bpf.c writes them, with
// the same arithmetic, on acknowledgements written by hand.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ebpf/astraea.h"
#include "transport/congestion/astraea/astraea.hpp"

namespace loomnet::astraea::by_hand {

class Kernel {
 public:
  explicit Kernel(const OptionValues& options, std::size_t slots = 4)
      : memory(slots * sizeof(astraea_slot)), agent(astraea_kind().in_kernel(options)) {
    agent->record();
  }

  astraea_slot& slot(std::size_t i = 0) { return reinterpret_cast<astraea_slot*>(memory.data())[i]; }
  std::uint64_t count(const std::string& name) const {
    for (const auto& [each, value] : agent->counts()) {
      if (each == name) return value;
    }
    return ~0ull;
  }

  void open(std::size_t i = 0) {
    astraea_slot& s = slot(i);
    const std::uint32_t gen = s.gen + 1;
    s = {};
    s.gen = gen;
    s.cwnd = 10;
    s.mss = 1'448;
    s.flags = agent->first_flags();
    s.local_port = static_cast<ln_u16>(40'000 + i);
    s.state = ASTRAEA_LIVE;
  }
  void close(std::size_t i = 0) { slot(i).state = ASTRAEA_RELEASED; }

  // An acknowledgement of one packet, which fills the window.
  void ack(double rtt_ms, std::size_t i = 0, std::uint32_t lost = 0) {
    astraea_slot& s = slot(i);
    const auto ms = static_cast<std::uint32_t>(now_ns / 1'000'000);
    const std::uint32_t wanted = astraea_command_window(s.command);
    const bool attended = astraea_attended(s.command, ms, s.timeout_ms);
    if (attended && wanted > 0) {
      s.cwnd = astraea_window(wanted, 1u << 20, s.ca_state == 4, s.cwnd, 1);
      s.mode = ASTRAEA_AGENT;
    } else if (s.mode == ASTRAEA_START) {
      if (!(s.flags & ASTRAEA_NO_SLOW_START) && lost == 0) ++s.cwnd;
    } else {
      s.fallbacks += s.mode == ASTRAEA_AGENT;
      s.mode = ASTRAEA_FALLBACK;
    }
    const auto rtt_us = static_cast<std::uint32_t>(rtt_ms * 1'000);
    if (s.agent_epoch != s.epoch) s.epoch_least_rtt_us = s.epoch_most_out = 0;
    s.epoch = s.agent_epoch;
    s.wseq += 2;
    ++s.acks;
    ++s.rtt_cnt;
    ++s.rate_cnt;
    ++s.delivered;
    s.rtt_sum_us += rtt_us;
    s.rate_sum_Bps += static_cast<std::uint64_t>(s.cwnd * 1'448.0 / rtt_ms * 1'000);
    s.lost += lost;
    s.srtt_x8_us = 8 * rtt_us;
    s.packets_out = s.cwnd;
    s.epoch_most_out = std::max(s.epoch_most_out, s.packets_out);
    if (s.epoch_least_rtt_us == 0 || rtt_us < s.epoch_least_rtt_us) s.epoch_least_rtt_us = rtt_us;
    if (s.min_rtt_us == 0 || rtt_us < s.min_rtt_us) s.min_rtt_us = rtt_us;
    s.pacing_Bps = astraea_pacing(s.cwnd, s.packets_out, s.mss, s.srtt_x8_us, 0);
    s.last_ack_ns = now_ns;
  }
  // A millisecond goes by; the agent wakes at multiples of five.
  void pass(bool agent_lives = true) {
    now_ns += 1'000'000;
    if (agent_lives && now_ns % 5'000'000 == 0) agent->wake(memory, now_ns);
  }
  // Milliseconds, with an acknowledgement in each.
  void go(int ms, double rtt_ms, bool agent_lives = true) {
    for (int k = 0; k < ms; ++k) {
      pass(agent_lives);
      ack(rtt_ms);
    }
  }

  std::vector<std::uint8_t> memory;
  std::unique_ptr<KernelAgent> agent;
  std::uint64_t now_ns = 1'000'000'000;
};

}  // namespace loomnet::astraea::by_hand
