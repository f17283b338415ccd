// Options of switch programs: checked by name, type and range before anything is built.
#include "switch/program_kind.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

namespace loomnet {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"true or false", "a whole number", "a number", "a text"};

std::string shown(const ProgramValue& value) {
  std::ostringstream out;
  std::visit(
      [&](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, bool>) {
          out << (v ? "True" : "False");
        } else if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
          out << '"' << v << '"';
        } else {
          out << v;
        }
      },
      value);
  return out.str();
}

[[noreturn]] void refuse(const ProgramKind& kind, const std::string& option, const std::string& why) {
  throw std::invalid_argument("switch program \"" + std::string(kind.name) + "\", option " + option + ": " + why);
}

void check_range(const ProgramKind& kind, const ProgramOption& option, double value, const ProgramValue& given) {
  if (value >= option.least && value <= option.most) return;  // false for NaN
  std::ostringstream range;
  range.precision(15);
  range << option.least << " to " << option.most;
  refuse(kind, std::string(option.name), "must be " + range.str() + ", not " + shown(given));
}

ProgramValue checked(const ProgramKind& kind, const ProgramOption& option, ProgramValue value) {
  // A whole number is a number too.
  if (std::holds_alternative<double>(option.fallback) && std::holds_alternative<std::int64_t>(value)) {
    value = static_cast<double>(std::get<std::int64_t>(value));
  }
  if (value.index() != option.fallback.index()) {
    refuse(kind, std::string(option.name),
           "must be " + std::string(kTypes[option.fallback.index()]) + ", not " + shown(value));
  }
  if (const auto* n = std::get_if<std::int64_t>(&value)) {
    check_range(kind, option, static_cast<double>(*n), value);
  } else if (const auto* x = std::get_if<double>(&value)) {
    check_range(kind, option, *x, value);
  } else if (const auto* t = std::get_if<std::string>(&value)) {
    if (!option.choices.empty() &&
        std::find(option.choices.begin(), option.choices.end(), *t) == option.choices.end()) {
      refuse(kind, std::string(option.name), "must be " + listed(option.choices, "or") + ", not " + shown(value));
    }
  }
  return value;
}

template <typename T>
const T& option_of(const ProgramSettings& settings, const std::string& option) {
  return std::get<T>(settings.options.at(option));
}

}  // namespace

std::string listed(const std::vector<std::string_view>& names, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;  // stands for an option that was not given
    if (!out.empty()) out += i + 1 == names.size() ? " " + std::string(last) + " " : ", ";
    out += names[i];
  }
  return out;
}

void append_host_counters(std::vector<std::string_view>& names){
#define LOOMNET_NAME(symbol, name) names.push_back(name);
    LN_HOST_COUNTERS(LOOMNET_NAME)
#undef LOOMNET_NAME
}

ProgramSettings
    checked_settings(const ProgramKind& kind, std::size_t ports, std::uint64_t seed, const ProgramOptions& given) {
  ProgramSettings settings{ports, seed, {}, kind.loaded};
  for (const ProgramOption& option : kind.options) {
    settings.options.emplace(option.name, option.fallback);
  }
  for (const auto& [name, value] : given) {
    const auto option = std::find_if(kind.options.begin(), kind.options.end(),
                                     [&wanted = name](const ProgramOption& o) { return o.name == wanted; });
    if (option == kind.options.end()) {
      std::vector<std::string_view> names;
      for (const ProgramOption& o : kind.options) names.push_back(o.name);
      throw std::invalid_argument("switch program \"" + std::string(kind.name) + "\" has no option \"" + name +
                                  "\"; it has " + (names.empty() ? "none" : listed(names)));
    }
    settings.options[name] = checked(kind, *option, value);
  }
  return settings;
}

bool flag(const ProgramSettings& settings, const std::string& option) { return option_of<bool>(settings, option); }
std::int64_t integer(const ProgramSettings& settings, const std::string& option) {
  return option_of<std::int64_t>(settings, option);
}
const std::string& text(const ProgramSettings& settings, const std::string& option) {
  return option_of<std::string>(settings, option);
}

}  // namespace loomnet
