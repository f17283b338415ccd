// Names, defaults and ranges, and what users may write for a distance between senders.
#include "switch/symphony/symphony_options.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>

#include "switch/forward/forward_kind.hpp"

namespace loomnet {
namespace {

constexpr double kStep = 65536;

[[noreturn]] void refuse(const std::string& option, const std::string& why) {
  throw std::invalid_argument("switch program \"symphony\", option " + option + ": " + why);
}

struct Distance {
  double value = 0;
  bool steps = false;
};

// "1 step", "0.5 steps", or a number in units of progress.
Distance distance(const ProgramSettings& s, const std::string& option) {
  const std::string& given = text(s, option);
  Distance out;
  const char* end = given.data() + given.size();
  const auto [rest, error] = std::from_chars(given.data(), end, out.value);
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  out.steps = unit == "step" || unit == "steps";
  if (error != std::errc{} || !(out.steps || unit.empty()) || !(out.value >= 0)) {
    refuse(option, "\"" + given + "\" is no distance, as \"1 step\", \"0.5 step\" or a number of units");
  }
  return out;
}

}  // namespace

std::vector<ProgramOption> symphony_options() {
  std::vector<ProgramOption> all = FallsThroughToForward::forward_options();
  const auto add = [&all](std::string_view name, ProgramValue fallback, std::string_view help, double least = 0,
                          double most = 0, std::vector<std::string_view> choices = {}, std::string_view unit = "") {
    all.push_back({name, std::move(fallback), help, least, most, std::move(choices), unit});
  };
  add("enable", true, "off: no packet is marked, no state is kept");
  add("mode", std::string("spaced"),
      "spaced: at most one extra mark of a ring and epoch, for DCQCN and classic ECN; prob: with the "
      "lead beyond tau over span, for hosts that react to the share of marks",
      0, 0, {"spaced", "prob"});
  add("identity", std::string("auto"),
      "where a packet says its step: in the step header (hdr), in its UDP source port (sport), by its "
      "sequence number (seq), nowhere (none). auto: a run takes what its hosts write, else seq where every "
      "ring keeps its queue pairs, else hdr",
      0, 0, {"auto", "hdr", "sport", "seq", "none"});
  add("base_marks", std::string("all"),
      "packets of a ring that keep the mark of the port's own rule: all, all but those of the rearmost sender "
      "(not_owner), those of senders more than tau ahead (leaders); as controls all but those of a random sender "
      "(not_random) or of the foremost (not_leader)",
      0, 0, {"all", "not_owner", "leaders", "not_random", "not_leader"});
  add("tau", std::string("1 step"), "lead that is not marked; with seq also a number of bytes", 0, 0, {}, "distance");
  add("span", std::string("1 step"), "prob: lead beyond tau from which on marks are certain", 0, 0, {}, "distance");
  add("cmp", std::string("fraction"),
      "fraction: leads are compared with parts of steps; step: by completed steps alone", 0, 0, {"fraction", "step"});
  add("shift", std::int64_t{17}, "an epoch is 2^shift nanoseconds; a run sets it by its fabric's rates", 10, 30, {},
      "epoch");
  add("stale", std::int64_t{2}, "epochs of silence after which another sender is the laggard", 1, 1e6);
  add("warm", std::int64_t{2}, "epochs without marks after a row is made", 0, 1e6);
  add("idle", std::int64_t{8192}, "epochs of silence after which a row may be another ring's", 2, 1e9);
  add("gate", std::int64_t{1}, "packets that must wait behind a marked one; 0: marks without a queue", 0, 1e9);
  add("gate_bytes", std::int64_t{0}, "and bytes", 0, 4e9, {}, "bytes");
  add("credit", std::int64_t{255},
      "epochs with marks, beyond those without, after which marks are withheld; 0: no budget", 0, SYMPHONY_CREDIT_MAX);
  add("g", std::int64_t{0}, "steps that two senders of a ring may be apart; 0: g_factor * ranks", 0, 32767);
  add("g_factor", std::int64_t{2}, "see g", 1, 1024);
  add("retx", std::string("count"), "ignore: retransmissions touch neither progress nor marks", 0, 0,
      {"count", "ignore"});
  add("rows", std::int64_t{256}, "rings that one port can track, in sets of 4: 4 to 65,536, a power of two", 4, 65536);
  add("host_ports", false, "track ports to hosts too, by which one flow of a ring leaves");
  add("jobs", std::string(),
      "jobs that are tracked, by their names with commas between, where the others are not; empty: all", 0, 0, {},
      "jobs");
  add("step", std::int64_t{0}, "seq: bytes that a rank sends in a step of its ring; a run makes its rules of it", 0,
      1e9, {}, "bytes");
  return all;
}

std::uint32_t symphony_rows(const ProgramSettings& s) {
  const auto rows = static_cast<std::uint32_t>(integer(s, "rows"));
  if (!std::has_single_bit(rows)) refuse("rows", "must be a power of two, not " + std::to_string(rows));
  return rows;
}

symphony_config symphony_settings(const ProgramSettings& s) {
  symphony_config c{};
  c.forward = FallsThroughToForward::forward_settings(s);
  c.sets = symphony_rows(s) / SYMPHONY_WAYS - 1;
  const std::string& identity = text(s, "identity");
  c.identity = identity == "sport"  ? SYMPHONY_SPORT
               : identity == "seq"  ? SYMPHONY_SEQ
               : identity == "none" ? SYMPHONY_NOTHING
                                    : SYMPHONY_HDR;  // of auto too, where no run decides
  const Distance tau = distance(s, "tau"), span = distance(s, "span");
  const double scaled = tau.steps ? tau.value * kStep : tau.value;
  if (scaled >= 2147483648.0 || (tau.steps && tau.value > 16383)) {
    refuse("tau", "\"" + text(s, "tau") + "\" is beyond what can be compared");
  }
  c.tau = static_cast<ln_u32>(std::lround(scaled));
  c.tau_units = !tau.steps;
  if (c.tau_units && c.identity == SYMPHONY_SPORT) {
    refuse("tau", "identity sport counts whole steps; give it as \"1 step\"");
  }
  if (!span.steps) refuse("span", "give it in steps, as \"1 step\"");
  const auto spread = static_cast<std::uint64_t>(std::lround(span.value * kStep));
  if (!std::has_single_bit(spread) || spread > 1u << 30) {
    refuse("span", "must be a step by a power of two, as \"0.5 step\" or \"4 step\", not \"" + text(s, "span") + "\"");
  }
  c.span = static_cast<ln_u32>(spread);
  c.mask = ~0u;
  if (text(s, "cmp") == "step") {
    if (c.identity != SYMPHONY_HDR && c.identity != SYMPHONY_NOTHING) {
      refuse("cmp", "step goes with identity hdr: sport knows whole steps alone, and seq none");
    }
    if (!tau.steps || c.tau % (1u << 16) != 0 || c.tau == 0) {
      refuse("tau", "cmp=step compares completed steps; give a whole number of them");
    }
    c.mask = 0xffff0000u;
    c.tau -= 1;
  }
  c.g = static_cast<ln_u32>(integer(s, "g"));
  c.g_factor = static_cast<ln_u32>(integer(s, "g_factor"));
  c.stale = static_cast<ln_u32>(integer(s, "stale"));
  c.warm = static_cast<ln_u32>(integer(s, "warm"));
  c.idle = static_cast<ln_u32>(integer(s, "idle"));
  c.gate = static_cast<ln_u32>(integer(s, "gate"));
  c.gate_bytes = static_cast<ln_u32>(integer(s, "gate_bytes"));
  c.enable = flag(s, "enable");
  c.mode = text(s, "mode") == "prob" ? SYMPHONY_PROB : SYMPHONY_SPACED;
  constexpr std::string_view kBase[] = {"all", "not_owner", "leaders", "not_random", "not_leader"};
  c.base = static_cast<ln_u8>(std::ranges::find(kBase, text(s, "base_marks")) - kBase);
  c.shift = static_cast<ln_u8>(integer(s, "shift"));
  c.credit = static_cast<ln_u8>(integer(s, "credit"));
  c.retx = text(s, "retx") == "ignore";
  c.jobs = text(s, "jobs").empty() ? SYMPHONY_ANY_JOB : SYMPHONY_LISTED;
  c.hosts = flag(s, "host_ports");
  return c;
}

}  // namespace loomnet
