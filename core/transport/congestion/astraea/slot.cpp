// See slot.hpp. All accesses are atomic: the other side is the kernel, on another processor.
#include "transport/congestion/astraea/slot.hpp"

#include <cstring>
#include <iterator>

#include "ebpf/astraea.h"

namespace loomnet::astraea {
namespace {

constexpr int kTries = 8;  // a write takes some 50 ns
// No flow has more than these. A slot with more is torn, stale or written by another process.
constexpr std::uint64_t kMostRtt_us = 3'600'000'000;  // of one sample
constexpr std::uint64_t kMostRate_Bps = 1ull << 44;   // of one sample
constexpr std::uint32_t kMostSamples = 1u << 28;      // between two readings

template <typename T>
T load(const T& from) {
  return __atomic_load_n(&from, __ATOMIC_ACQUIRE);
}
template <typename T>
void store(T& to, T value) {
  __atomic_store_n(&to, value, __ATOMIC_RELEASE);
}

}  // namespace

std::uint32_t state_of(const astraea_slot& slot) { return load(slot.state); }

std::optional<astraea_slot> read_slot(const astraea_slot& slot) {
  for (int i = 0; i < kTries; ++i) {
    const std::uint32_t gen = load(slot.gen), before = load(slot.wseq);
    if (before % 2 != 0) continue;
    std::uint64_t words[sizeof(astraea_slot) / sizeof(std::uint64_t)];
    const auto* from = reinterpret_cast<const std::uint64_t*>(&slot);
    for (std::size_t w = 0; w < std::size(words); ++w) words[w] = load(from[w]);
    if (load(slot.wseq) != before || load(slot.gen) != gen || load(slot.state) != ASTRAEA_LIVE) continue;
    astraea_slot copy;
    std::memcpy(&copy, words, sizeof copy);
    if (copy.gen == gen && copy.wseq == before && copy.state == ASTRAEA_LIVE) return copy;
  }
  return std::nullopt;
}

bool plausible(const astraea_slot& before, const astraea_slot& now) {
  const std::uint32_t rtts = now.rtt_cnt - before.rtt_cnt, rates = now.rate_cnt - before.rate_cnt;
  const std::uint32_t acks = now.acks - before.acks, lost = now.lost - before.lost;
  if (acks > kMostSamples || rtts > acks || rates > acks || lost > kMostSamples) return false;
  // Of sums that wrap the difference is huge, and refused with the rest.
  if (now.rtt_sum_us - before.rtt_sum_us > rtts * kMostRtt_us) return false;
  if (now.rate_sum_Bps - before.rate_sum_Bps > rates * kMostRate_Bps) return false;
  return now.packets_out <= kMostSamples && now.retrans_out <= kMostSamples && now.cwnd <= kMostSamples &&
         now.mss <= 0xffff && now.mode <= ASTRAEA_FALLBACK;
}

void write_command(astraea_slot& slot, std::uint64_t now_ns, std::uint32_t window) {
  std::uint64_t word = astraea_command(static_cast<std::uint32_t>(now_ns / 1'000'000), window);
  if (word == 0) word = astraea_command(~0u, 0);  // the one stamp in 49 days that reads as no command
  store<ln_u64>(slot.command, word);
}

void write_epoch(astraea_slot& slot, std::uint32_t epoch) { store(slot.agent_epoch, epoch); }

void write_settings(astraea_slot& slot, std::uint32_t flags, std::uint32_t timeout_ms) {
  store(slot.flags, flags);
  store(slot.timeout_ms, timeout_ms);
}

void free_slot(astraea_slot& slot) {
  std::uint32_t released = ASTRAEA_RELEASED;
  __atomic_compare_exchange_n(&slot.state, &released, static_cast<std::uint32_t>(ASTRAEA_FREE), false, __ATOMIC_ACQ_REL,
                              __ATOMIC_RELAXED);
}

}  // namespace loomnet::astraea
