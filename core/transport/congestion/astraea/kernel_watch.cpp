// See kernel_watch.hpp.
#include "transport/congestion/astraea/kernel_watch.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "ebpf/astraea.h"
#include "transport/congestion/astraea/kernel_policy.hpp"
#include "transport/congestion/astraea/slot.hpp"

namespace loomnet::astraea {
namespace {

constexpr std::size_t kMostKept = 1'000'000;  // decisions, for series: 64 flows for 8 minutes

enum Watched : std::size_t { w_flows, w_decisions, w_fallbacks, w_torn, w_unseen, w_dropped, w_most, kWatched };
constexpr std::array<std::string_view, kWatched> kWatchedNames = {
    "flows", "decisions", "fallbacks", "torn_reads", "intervals_unseen", "decisions_dropped", "most_flows"};

class SlotWatch final : public KernelAgent {
 public:
  explicit SlotWatch(Plan plan) : plan_(std::move(plan)) {}
  std::chrono::nanoseconds wake_every() const override { return std::chrono::microseconds(plan_.options.wake_us); }
  std::size_t slot_bytes() const override { return sizeof(astraea_slot); }
  std::uint32_t first_flags() const override { return plan_.agent.slow_start ? 0 : ASTRAEA_NO_SLOW_START; }
  std::size_t policy_bytes() const override { return sizeof(astraea_policies); }
  void write_policy(std::span<std::uint8_t> memory) override {
    publish_policy(*reinterpret_cast<astraea_policies*>(memory.data()), plan_);
  }
  void wake(std::span<std::uint8_t> slots, std::uint64_t now_ns) override;
  NamedCounts counts() const override { return named_counts(kWatchedNames, counts_); }
  void record() override { records_ = true; }
  std::vector<KernelDecision> take_decisions() override { return std::exchange(log_, {}); }

 private:
  struct Row {
    bool there = false;
    std::uint32_t gen = 0, intervals = 0, decisions = 0, fallbacks = 0;  // counted already
  };

  void visit(Row& row, const astraea_slot& slot);

  const Plan plan_;
  std::vector<Row> rows_;
  bool records_ = false;
  std::vector<KernelDecision> log_;
  std::array<std::uint64_t, kWatched> counts_{};
};

void SlotWatch::wake(std::span<std::uint8_t> memory, std::uint64_t) {
  const std::span slots(reinterpret_cast<astraea_slot*>(memory.data()), memory.size() / sizeof(astraea_slot));
  rows_.resize(slots.size());
  std::uint64_t live = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::uint32_t state = state_of(slots[i]);
    if (state == ASTRAEA_LIVE) {
      visit(rows_[i], slots[i]);
      ++live;
    } else if (state == ASTRAEA_RELEASED) {
      free_slot(slots[i]);
    }
  }
  counts_[w_most] = std::max(counts_[w_most], live);
}

void SlotWatch::visit(Row& row, const astraea_slot& slot) {
  const std::optional<astraea_slot> read = read_slot(slot);
  if (!read) {
    ++counts_[w_torn];
    return;
  }
  if (!row.there || row.gen != read->gen) {
    row = {.there = true, .gen = read->gen};
    ++counts_[w_flows];
  }
  counts_[w_decisions] += read->decisions - row.decisions;
  counts_[w_fallbacks] += read->fallbacks - row.fallbacks;
  row.decisions = read->decisions;
  row.fallbacks = read->fallbacks;
  const std::uint32_t ended = read->intervals - std::exchange(row.intervals, read->intervals);
  if (ended == 0) return;
  counts_[w_unseen] += ended - 1;  // the slot has the last one alone
  if (!records_) return;
  if (log_.size() >= kMostKept) {
    ++counts_[w_dropped];
    return;
  }
  KernelDecision& d = log_.emplace_back();
  d.at_ns = read->decided_us * 1'000;
  d.netns = read->netns;
  d.local_port = read->local_port;
  d.remote_port = read->remote_port;
  d.window = read->seen_cwnd;
  d.commanded = astraea_command_window(read->command);
  d.mode = read->mode;
  d.fallbacks = read->fallbacks;
  d.throughput_Bps = static_cast<double>(read->seen_Bps);
  d.rtt_us = read->seen_rtt_us;
  d.least_rtt_us = read->seen_min_rtt_us;
  d.loss_Bps = read->seen_loss_Bps;
  d.queue_packets = read->seen_queue_x256 / 256.0;
  d.action = static_cast<double>(read->action) / kFullAction;
}

}  // namespace

std::unique_ptr<KernelAgent> make_kernel_watch(Plan plan) { return std::make_unique<SlotWatch>(std::move(plan)); }

}  // namespace loomnet::astraea
