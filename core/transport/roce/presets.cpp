// The constants of each preset, and how they meet options that are given; see presets.hpp.
#include "transport/roce/presets.hpp"

#include <algorithm>

#include "clock/time.hpp"

namespace loomnet::roce {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

// What A, B and C have in common. Simulators raise the rate by time alone, move alpha once per timer,
// and take the target down only with the first cut after a raise.
OptionValues dcqcn(Picoseconds cnp_gap, Picoseconds decrease, Picoseconds rate_timer, Picoseconds alpha_timer,
                   std::uint64_t fast_recovery, bool alpha_restart) {
  return {{"cc", std::string("dcqcn")},
          {"cnp_gap_ps", cnp_gap.count},
          {"decrease_interval_ps", decrease.count},
          {"rate_timer_ps", rate_timer.count},
          {"alpha_timer_ps", alpha_timer.count},
          {"fast_recovery", fast_recovery},
          {"dcqcn_g", 1.0 / 256},
          {"additive_rate_bps", 50 * kMega},
          {"hyper_rate_bps", 100 * kMega},
          {"minimum_rate_bps", 100 * kMega},
          {"byte_counter", std::uint64_t{0}},
          {"alpha_sampled", true},
          {"clamp_target", false},
          {"alpha_restart", alpha_restart}};
}

}  // namespace

const std::vector<OptionPreset>& presets() {
  static const std::vector<OptionPreset> rows = {
      {"A", "DCQCN with the defaults of public RDMA simulators: a CNP per mark, a cut per 4 us at most",
       dcqcn({}, microseconds(4), microseconds(900), microseconds(1), 1, false)},
      {"B", "DCQCN as in NICs: a CNP and a cut per 50 us at most, raises every 300 us",
       dcqcn(microseconds(50), microseconds(50), microseconds(300), microseconds(55), 5, true)},
      {"C", "B with raises every 55 us",
       dcqcn(microseconds(50), microseconds(50), microseconds(55), microseconds(55), 5, true)},
      {"D",
       "a window by the share of marked packets, an acknowledgement per packet",
       {{"cc", std::string("dctcp_like")},
        {"dctcp_gain", 1.0 / 16},
        {"dctcp_increase_every_ps", microseconds(20).count},
        {"ack_interval", std::uint64_t{1}}}},
      {"astra-sim",
       "no control but a window of one product, as ASTRA-sim's ns-3 backend is shipped",
       {{"window_bdps", 1.0}, {"ack_interval", std::uint64_t{1}}, {"ect", true}}},
  };
  return rows;
}

const OptionPreset* preset_of(const OptionValues& values) {
  const auto given = std::find_if(values.begin(), values.end(), [](const auto& row) { return row.first == "preset"; });
  if (given == values.end()) return nullptr;
  std::string name;
  if (!assign(name, given->second)) refuse_option("roce", "preset has the wrong type, which is a text");
  if (name.empty()) return nullptr;
  std::vector<std::string> names;
  for (const OptionPreset& preset : presets()) {
    if (preset.name == name) return &preset;
    names.push_back(preset.name);
  }
  refuse_option("roce", "no preset " + name + "; there are " + listed(names));
}

OptionValues with_preset(const OptionPreset& preset, const OptionValues& values) {
  OptionValues all;
  for (const auto& row : values) {
    if (row.first != "preset") all.push_back(row);
  }
  for (const auto& row : preset.values) {
    const auto given = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == row.first; });
    if (given == all.end()) {
      all.push_back(row);
    } else if (row.first == "cc" && given->second != row.second) {
      refuse_option("roce",
                    "preset " + preset.name + " is of another congestion control than cc; " + "give one of them");
    }
  }
  return all;
}

}  // namespace loomnet::roce
