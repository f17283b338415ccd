// See kernel_agent.hpp.
#include "transport/congestion/astraea/kernel_agent.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "transport/congestion/astraea/kernel_flow.hpp"
#include "transport/congestion/astraea/slot.hpp"

namespace loomnet::astraea {
namespace {

constexpr std::uint32_t kTimeoutIntervals = 5;  // without a command, after which the kernel goes on alone
constexpr std::size_t kMostDecisions = 1'000'000;  // kept for series: 64 flows for 8 minutes

// Counters of the agent, and the names under which reports have them.
enum Count : std::size_t { flows, decisions, commands, fallbacks, torn, implausible, dropped, most_flows, kCounts };
constexpr std::array<std::string_view, kCounts> kNames = {
    "flows",      "decisions",         "commands",          "fallbacks",
    "torn_reads", "implausible_reads", "decisions_dropped", "most_flows"};

class SlotAgent final : public KernelAgent {
 public:
  explicit SlotAgent(Plan plan);
  std::chrono::nanoseconds wake_every() const override { return std::chrono::microseconds(plan_.options.wake_us); }
  std::size_t slot_bytes() const override { return sizeof(astraea_slot); }
  std::uint32_t first_flags() const override { return flags_; }
  void wake(std::span<std::uint8_t> slots, std::uint64_t now_ns) override;
  NamedCounts counts() const override { return named_counts(kNames, counts_); }
  void record() override { records_ = true; }
  std::vector<KernelDecision> take_decisions() override { return std::exchange(log_, {}); }

 private:
  struct Row {
    std::optional<KernelFlow> flow;
    std::uint32_t fallbacks = 0;   // of the flow, counted already
    std::uint64_t stamped_ns = 0;  // when its command was; 0: never
  };

  void visit(std::size_t index, astraea_slot& slot, std::uint64_t now_ns);
  void act();
  void write(astraea_slot& slot, Row& row, std::uint64_t now_ns);

  const Plan plan_;
  std::uint32_t timeout_ms_, flags_;
  std::uint64_t stamp_ns_;      // from one stamp of a command to the next
  std::uint64_t began_ns_ = 0;  // times of flows count from it
  std::vector<Row> rows_;
  std::vector<std::size_t> seen_;    // slots that were read at this wake-up …
  std::vector<std::size_t> acting_;  // … and those of them that a trained policy acts for
  std::vector<float> inputs_, actions_;
  std::vector<std::int16_t> integers_;
  bool records_ = false;
  std::vector<KernelDecision> log_;
  std::array<std::uint64_t, kCounts> counts_{};
};

SlotAgent::SlotAgent(Plan plan) : plan_(std::move(plan)) {
  const AgentOptions& o = plan_.agent;
  const bool by_rtts = o.interval_rtts > 0;
  const std::int64_t longest = (by_rtts ? o.interval_most : o.interval).count;
  timeout_ms_ = static_cast<std::uint32_t>(std::max<std::int64_t>(kTimeoutIntervals * longest / 1'000'000'000, 1));
  stamp_ns_ = static_cast<std::uint64_t>((by_rtts ? o.interval_least : o.interval).count / 1'000);
  flags_ = o.slow_start ? 0 : ASTRAEA_NO_SLOW_START;
}

void SlotAgent::wake(std::span<std::uint8_t> memory, std::uint64_t now_ns) {
  const std::span slots(reinterpret_cast<astraea_slot*>(memory.data()), memory.size() / sizeof(astraea_slot));
  if (began_ns_ == 0) began_ns_ = now_ns;
  rows_.resize(slots.size());
  seen_.clear();
  acting_.clear();
  inputs_.clear();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::uint32_t state = state_of(slots[i]);
    if (state == ASTRAEA_LIVE) {
      visit(i, slots[i], now_ns);
    } else {
      if (rows_[i].flow) rows_[i] = {};
      if (state == ASTRAEA_RELEASED) free_slot(slots[i]);
    }
  }
  counts_[most_flows] = std::max<std::uint64_t>(counts_[most_flows], seen_.size());
  if (!acting_.empty()) act();
  for (const std::size_t i : seen_) write(slots[i], rows_[i], now_ns);
}

void SlotAgent::visit(std::size_t index, astraea_slot& slot, std::uint64_t now_ns) {
  const std::optional<astraea_slot> read = read_slot(slot);
  if (!read) {
    ++counts_[torn];
    return;
  }
  Row& row = rows_[index];
  // The slot's next flow has another generation.
  if (!row.flow || row.flow->gen() != read->gen) {
    row = {};
    row.flow.emplace(plan_, *read);
    row.fallbacks = read->fallbacks;
    ++counts_[flows];
    write_settings(slot, flags_, timeout_ms_);
  }
  seen_.push_back(index);
  KernelFlow& flow = *row.flow;
  const bool acts = flow.look(*read, Picoseconds{static_cast<std::int64_t>(now_ns - began_ns_) * 1'000});
  if (flow.refused()) {
    ++counts_[implausible];
  } else {
    counts_[fallbacks] += read->fallbacks - row.fallbacks;
  }
  row.fallbacks = read->fallbacks;
  if (!acts) return;
  ++counts_[decisions];
  if (plan_.policy.rule != Rule::trained) return flow.act_by_rule();
  acting_.push_back(index);
  inputs_.insert(inputs_.end(), flow.input().begin(), flow.input().end());
}

// All flows that are due, at once.
void SlotAgent::act() {
  const Policy& policy = *plan_.policy.trained;
  if (plan_.options.arithmetic == Arithmetic::int16) {
    integers_.resize(acting_.size());
    policy.act_int16(inputs_, integers_);
    for (std::size_t k = 0; k < acting_.size(); ++k) rows_[acting_[k]].flow->act_int16(integers_[k]);
    return;
  }
  actions_.resize(acting_.size());
  policy.act(inputs_, actions_);
  for (std::size_t k = 0; k < acting_.size(); ++k) rows_[acting_[k]].flow->act(actions_[k]);
}

void SlotAgent::write(astraea_slot& slot, Row& row, std::uint64_t now_ns) {
  const KernelFlow& flow = *row.flow;
  write_epoch(slot, flow.epoch());
  // A flow that rests keeps its window, and its agent shows that it is there.
  if (flow.commands() || row.stamped_ns == 0 || now_ns - row.stamped_ns >= stamp_ns_) {
    write_command(slot, now_ns, flow.command());
    row.stamped_ns = now_ns;
    counts_[commands] += flow.commands();
  }
  if (!records_ || !flow.ended()) return;
  if (log_.size() >= kMostDecisions) {
    ++counts_[dropped];
    return;
  }
  log_.push_back(flow.decision());
  log_.back().at_ns = now_ns;
}

}  // namespace

std::unique_ptr<KernelAgent> make_kernel_agent(Plan plan) { return std::make_unique<SlotAgent>(std::move(plan)); }

}  // namespace loomnet::astraea
