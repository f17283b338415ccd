// Any bytes as the slots of Astraea's flows in the kernel's TCP: the agent reads them without harm, and
// commands windows that a flow may have.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ebpf/astraea.h"
#include "transport/congestion/astraea/astraea.hpp"

using namespace loomnet::astraea;

namespace {

constexpr std::size_t kSlots = 2, kBytes = kSlots * sizeof(astraea_slot);
constexpr std::uint64_t kWake_ns = 5'000'000;

}  // namespace

// Each wake-up sees the next bytes, laid over the slots by exclusive or, so that counters that were plausible
// stay so now and then; the first byte says whether states and sequences are mended.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint8_t mended = data[0];
  const auto agent = astraea_kind().in_kernel({});
  agent->record();
  std::vector<std::uint8_t> memory(kBytes);
  std::uint64_t now_ns = 1;
  for (std::size_t at = 1; at < size; at += kBytes / 2) {
    for (std::size_t i = 0; i < std::min(kBytes, size - at); ++i) memory[i] ^= data[at + i];
    auto* slots = reinterpret_cast<astraea_slot*>(memory.data());
    for (std::size_t i = 0; i < kSlots; ++i) {
      if (mended & 1) slots[i].state = ASTRAEA_LIVE;
      if (mended & 2) slots[i].wseq &= ~1u;
      if (mended & 4) slots[i].gen = 1;
      if (mended & 8) slots[i].rtt_sum_us = slots[i].rate_sum_Bps = slots[i].rtt_cnt = slots[i].rate_cnt = 0;
      if (mended & 16) slots[i].mode = ASTRAEA_AGENT;
      slots[i].command = 0;
    }
    now_ns += kWake_ns;
    agent->wake(memory, now_ns);
    for (std::size_t i = 0; i < kSlots; ++i) {
      const std::uint32_t window = astraea_command_window(slots[i].command);
      if (window != 0 && (window < kLeastWindow || window > kMostWindow)) std::abort();
    }
  }
  agent->take_decisions();
  return 0;
}
