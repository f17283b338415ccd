// The register of congestion controls, and the choice of one for a transport.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "transport/congestion.hpp"
#include "transport/congestion/built_in.hpp"

namespace loomnet {
namespace {

struct Named {
  Signals signal;
  std::string_view name;
};
constexpr std::array kSignals = {
    Named{signal::rtt, "rtt"},
    Named{signal::delivery_rate, "delivery_rate"},
    Named{signal::marks, "marks"},
    Named{signal::recovery, "recovery"},
    Named{signal::refusals, "refusals"},
    Named{signal::notifications, "notifications"},
    Named{signal::line_rate, "line_rate"},
};

std::vector<CongestionKind>& kinds() {
  static std::vector<CongestionKind> rows = built_in_congestion_controls();
  return rows;
}

bool fits(const CongestionKind& kind, Signals gives) { return (kind.needs & ~gives) == 0; }

bool has(const std::vector<OptionInfo>& options, std::string_view name) {
  return std::any_of(options.begin(), options.end(), [&](const OptionInfo& o) { return o.name == name; });
}

}  // namespace

std::string_view to_string(Congestion kind) {
  switch (kind) {
    case Congestion::loss:
      return "loss";
    case Congestion::ecn:
      return "ecn";
    case Congestion::timeout:
      return "timeout";
    case Congestion::refused:
      return "refused";
    case Congestion::notified:
      return "notified";
  }
  return "unknown";
}

std::string names_of(Signals signals) {
  std::vector<std::string> names;
  for (const Named& each : kSignals) {
    if (signals & each.signal) names.emplace_back(each.name);
  }
  return listed(names);
}

Signals signal_named(std::string_view name) {
  for (const Named& each : kSignals) {
    if (each.name == name) return each.signal;
  }
  throw std::invalid_argument("congestion control: no signal " + std::string(name) + "; there are " +
                              names_of(~Signals{0}));
}

void observe_limits(const FlowLimits& limits, const CongestionControl& control, Observer& out) {
  if (limits.cwnd != kNoLimit) out.value("cwnd", static_cast<double>(limits.cwnd));
  out.value("pacing_bps", limits.pacing_rate);
  control.observe(out);
}

FlowLimits fresh_limits(const FlowContext& flow) {
  FlowLimits limits;
  limits.mss = flow.mss;
  limits.cwnd = flow.initial_window;
  return limits;
}

void register_congestion_control(CongestionKind kind) {
  if (kind.name.empty() || !kind.choose) {
    throw std::invalid_argument("congestion control: a name and a maker are needed");
  }
  auto& rows = kinds();
  const auto same = [&](const CongestionKind& k) { return k.name == kind.name; };
  if (const auto it = std::find_if(rows.begin(), rows.end(), same); it != rows.end()) {
    *it = std::move(kind);
  } else {
    rows.push_back(std::move(kind));
  }
}

const std::vector<CongestionKind>& congestion_controls() { return kinds(); }

CongestionMake choose_congestion_control(std::string_view field, std::string_view name, const OptionValues& options,
                                         Signals gives) {
  std::vector<std::string> usable;
  for (const CongestionKind& kind : kinds()) {
    if (kind.name == name) {
      if (fits(kind, gives)) return kind.choose(options);
      refuse_option(field,
                    kind.name + " needs " + names_of(kind.needs & ~gives) + ", which this transport does not give");
    }
    if (fits(kind, gives)) usable.push_back(kind.name);
  }
  refuse_option(field, "no control " + std::string(name) + "; there are " + listed(usable));
}

OptionValues options_of_control(std::string_view transport, const std::vector<OptionInfo>& known, std::string_view name,
                                const OptionValues& options, Signals gives) {
  OptionValues own;
  for (const auto& [option, value] : options) {
    if (has(known, option)) continue;
    bool elsewhere = false;
    for (const CongestionKind& kind : kinds()) {
      if (!fits(kind, gives) || !has(kind.options, option)) continue;
      elsewhere = true;
      if (kind.name == name) own.emplace_back(option, value);
    }
    if (elsewhere) continue;
    std::vector<std::string> names;
    const auto add = [&](const std::vector<OptionInfo>& rows) {
      for (const OptionInfo& row : rows) {
        if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
      }
    };
    add(known);
    for (const CongestionKind& kind : kinds()) {
      if (fits(kind, gives)) add(kind.options);
    }
    refuse_unknown_option(transport, option, names);
  }
  // Those of other controls are refused where they are wrong, else unused: all of a control's together, since
  // one may bound another.
  for (const CongestionKind& kind : kinds()) {
    if (kind.name == name || !fits(kind, gives)) continue;
    OptionValues others;
    for (const auto& [option, value] : options) {
      if (!has(known, option) && has(kind.options, option)) others.emplace_back(option, value);
    }
    if (!others.empty()) kind.choose(others);
  }
  return own;
}

}  // namespace loomnet
