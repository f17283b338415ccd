#include "rank/rank_abi.hpp"

#include <bit>

namespace loomnet::rank {
namespace {

constexpr std::uint32_t kMaxEntries = 1u << 20;
constexpr std::uint64_t kMaxStaging = 1ull << 40;
// As StagingLayout has it.
constexpr std::uint32_t kMaxSumSlots = 64, kMaxSumWindow = 32768, kMaxSumServers = 64, kMaxSumReach = 1024;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::string_view to_string(GoneReason reason) {
  switch (reason) {
    case GoneReason::exited:
      return "exited";
    case GoneReason::killed:
      return "killed";
    case GoneReason::cut_off:
      return "cut off";
    case GoneReason::stalled:
      return "stalled";
    case GoneReason::stopped:
      return "stopped";
    case GoneReason::failed:
      return "failed";
  }
  return "unknown";
}

bool make_layout(const Geometry& g, Layout& layout, std::string_view& why) {
  if (g.world == 0 || g.world > kMaxWorld) return why = "world", false;
  if (g.rank >= g.world) return why = "rank", false;
  if (g.channels == 0 || g.channels > kMaxChannels) return why = "channels", false;
  if (g.staging_bytes > kMaxStaging) return why = "staging_bytes", false;
  if (g.sum_slots > kMaxSumSlots) return why = "sum_slots", false;
  if (g.sum_slots != 0) {
    if (g.sum_values != 64 && g.sum_values != 128 && g.sum_values != 256) return why = "sum_values", false;
    if (g.sum_window == 0 || g.sum_window > kMaxSumWindow) return why = "sum_window", false;
    if (g.sum_servers == 0 || g.sum_servers > kMaxSumServers) return why = "sum_servers", false;
    if (g.sum_reach < 2 || g.sum_reach > kMaxSumReach) return why = "sum_reach", false;
    if (g.sum_floats > 1 || (g.sum_floats != 0 && g.sum_scale == 0)) return why = "sum_floats", false;
  }
  const std::uint32_t capacity[kRings] = {g.submissions, g.completions, g.arrivals, g.marks, g.notices};
  constexpr std::size_t entry[kRings] = {sizeof(Submission), sizeof(CompletionEntry), sizeof(ArrivalEntry),
                                         sizeof(MarkEntry), sizeof(NoticeEntry)};
  constexpr std::string_view names[kRings] = {"submissions", "completions", "arrivals", "marks", "notices"};
  layout.rank_words = kPage;
  layout.engine_words = 2 * kPage;
  layout.ring_words = 3 * kPage;
  std::size_t at = 4 * kPage;
  static_assert(sizeof(Header) <= kPage && sizeof(RankWords) <= kPage);
  static_assert(sizeof(EngineWords) <= kPage && kRings * sizeof(RingWords) <= kPage);
  for (std::size_t i = 0; i < kRings; ++i) {
    if (!std::has_single_bit(capacity[i]) || capacity[i] > kMaxEntries) {
      return why = names[i], false;
    }
    layout.entries[i] = at;
    at = round_up(at + capacity[i] * entry[i], kPage);
  }
  layout.staging = at;
  layout.total = round_up(at + g.staging_bytes, kPage);
  return true;
}

}  // namespace loomnet::rank
