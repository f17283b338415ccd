// The named sets of options: their constants, what wins over them, what is refused; and what they make
// of marks on the wire.
#include "transport/roce/presets.hpp"

#include <gmock/gmock.h>

#include <map>

#include "packet/ecn.hpp"
#include "transport_roce/roce_bed.hpp"

namespace loomnet {
namespace {

using roce::RoceOptions;
using testbed::RoceBed;

OptionValues named(const std::string& preset, OptionValues more = {}) {
  more.emplace_back("preset", preset);
  return more;
}

std::map<std::string, double> numbers(const RoceOptions& o) {
  std::map<std::string, double> found;
  for (const auto& each : o.congestion_options) {
    std::visit(
        [&]<typename T>(const T& v) {
          if constexpr (std::is_arithmetic_v<T>) found[each.first] = static_cast<double>(v);
        },
        each.second);
  }
  return found;
}

TEST(RocePresets, HaveTheConstantsOfTheSimulations) {
  using Row = std::map<std::string, double>;
  const auto row = [](double decrease, double rate, double alpha, double f, double restart) {
    return Row{{"decrease_interval_ps", decrease * 1e6},
               {"rate_timer_ps", rate * 1e6},
               {"alpha_timer_ps", alpha * 1e6},
               {"fast_recovery", f},
               {"dcqcn_g", 1.0 / 256},
               {"additive_rate_bps", 50e6},
               {"hyper_rate_bps", 100e6},
               {"minimum_rate_bps", 100e6},
               {"byte_counter", 0},
               {"alpha_sampled", 1},
               {"clamp_target", 0},
               {"alpha_restart", restart}};
  };
  const RoceOptions a = RoceOptions::of(named("A")), b = RoceOptions::of(named("B")), c = RoceOptions::of(named("C")),
                    d = RoceOptions::of(named("D"));
  EXPECT_EQ(numbers(a), row(4, 900, 1, 1, 0));
  EXPECT_EQ(numbers(b), row(50, 300, 55, 5, 1));
  EXPECT_EQ(numbers(c), row(50, 55, 55, 5, 1));
  EXPECT_EQ(numbers(d), (Row{{"dctcp_gain", 1.0 / 16}, {"dctcp_increase_every_ps", 20e6}}));
  EXPECT_EQ(a.cnp_gap, Picoseconds{});
  EXPECT_EQ(b.cnp_gap, microseconds(50));
  EXPECT_EQ(c.cnp_gap, microseconds(50));
  EXPECT_EQ(d.ack_interval, 1u);
  EXPECT_EQ(a.control(), "dcqcn");
  EXPECT_EQ(d.control(), "dctcp_like");
  EXPECT_EQ(b.preset, "B");
  const RoceOptions astra = RoceOptions::of(
      named("astra-sim", {{"line_rate_bps", std::uint64_t{1'000'000}}, {"net_rtt_ps", std::int64_t{1}}}));
  EXPECT_EQ(astra.control(), "");
  EXPECT_EQ(astra.window_bdps, 1);
  EXPECT_EQ(astra.ack_interval, 1u);
  EXPECT_TRUE(astra.ect);
}

TEST(RocePresets, GivenOptionsWinAndWithoutOneNothingChanges) {
  const RoceOptions o =
      RoceOptions::of(named("B", {{"rate_timer_ps", std::int64_t{7}}, {"cnp_gap_ps", std::int64_t{9}}}));
  EXPECT_EQ(numbers(o).at("rate_timer_ps"), 7);
  EXPECT_EQ(o.cnp_gap.count, 9);
  EXPECT_EQ(numbers(o).at("alpha_timer_ps"), 55e6);
  EXPECT_EQ(RoceOptions::of(named("")).control(), "");
  const RoceOptions plain = RoceOptions::of({{"dcqcn", true}});
  EXPECT_TRUE(plain.congestion_options.empty());
  EXPECT_EQ(plain.cnp_gap, microseconds(50));
}

std::string refusal(const OptionValues& values) {
  try {
    RoceOptions::of(values);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(RocePresets, AreRefusedByName) {
  EXPECT_EQ(refusal(named("E")), "roce: no preset E; there are A, B, C, D, astra-sim");
  EXPECT_EQ(refusal({{"preset", true}}), "roce: preset has the wrong type, which is a text");
  EXPECT_EQ(refusal(named("A", {{"cc", std::string("timely")}})),
            "roce: preset A is of another congestion control than cc; give one of them");
  EXPECT_EQ(refusal(named("D", {{"dcqcn", true}})),
            "roce: dcqcn and cc name two congestion controls; give one of them");
  EXPECT_EQ(refusal(named("A", {{"dcqcn", true}, {"cc", std::string("dcqcn")}})), "accepted");
}

RoceOptions on_bed(const std::string& preset) {
  RoceOptions o = RoceOptions::of(named(preset));
  o.payload_mtu = 256;
  o.line_rate = 100'000'000'000;
  return o;
}

// Times of the notifications that cross the bed while every data packet is marked.
std::vector<Picoseconds> notified(RoceBed& bed, std::uint32_t bytes) {
  std::vector<Picoseconds> times;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    const Bth bth = testbed::bth_of(p);
    if (bth.opcode == 0x81) times.push_back(bed.now());
    if (from == 0 && bth.opcode != 0x11) mark_ce(p);
    return Picoseconds{};
  };
  bed.write(0, bytes);
  EXPECT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  return times;
}

TEST(RocePresets, AHasACnpPerMarkAndCutsFourMicrosecondsApart) {
  RoceBed bed({}, on_bed("A"));
  const auto times = notified(bed, 256 * 500);
  EXPECT_EQ(times.size(), bed.nic(1).counter("ce_received"));
  EXPECT_EQ(bed.nic(0).counter("cnps_received"), 500u);
  const auto cuts = bed.nic(0).counter("rate_cuts");
  EXPECT_GE(cuts, 3u);
  const auto span = (times.back() - times.front()).microseconds();
  EXPECT_LE(static_cast<double>(cuts), span / 4 + 2) << "at most one per interval";
}

TEST(RocePresets, BHasOneCnpAndOneCutPerFiftyMicroseconds) {
  RoceBed bed({}, on_bed("B"));
  const auto times = notified(bed, 256 * 3'000);
  ASSERT_GE(times.size(), 3u);
  for (std::size_t i = 1; i < times.size(); ++i) {
    EXPECT_GE(times[i] - times[i - 1], microseconds(50));
  }
  EXPECT_LE(bed.nic(0).counter("rate_cuts"), times.size());
  EXPECT_GE(bed.nic(0).counter("rate_cuts"), times.size() - 1) << "the last may come too late";
}

}  // namespace
}  // namespace loomnet
