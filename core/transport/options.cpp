// Values into fields, and what is wrong with them in words.
#include "transport/options.hpp"

#include <sstream>

namespace loomnet {

bool assign(bool& target, const OptionValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return target = false, true;
  if (const bool* b = std::get_if<bool>(&value)) return target = *b, true;
  if (const auto* n = std::get_if<std::int64_t>(&value)) return target = *n != 0, true;
  return false;
}

bool assign(std::uint64_t& target, const OptionValue& value) {
  if (const bool* b = std::get_if<bool>(&value)) return target = *b, true;
  if (const auto* n = std::get_if<std::uint64_t>(&value)) return target = *n, true;
  const auto* n = std::get_if<std::int64_t>(&value);
  if (!n || *n < 0) return false;
  target = static_cast<std::uint64_t>(*n);
  return true;
}

bool assign(std::int64_t& target, const OptionValue& value) {
  if (const bool* b = std::get_if<bool>(&value)) return target = *b, true;
  if (const auto* n = std::get_if<std::int64_t>(&value)) return target = *n, true;
  const auto* n = std::get_if<std::uint64_t>(&value);
  if (!n || *n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
  target = static_cast<std::int64_t>(*n);
  return true;
}

bool assign(double& target, const OptionValue& value) {
  if (const double* d = std::get_if<double>(&value)) return target = *d, true;
  if (const bool* b = std::get_if<bool>(&value)) return target = *b, true;
  if (const auto* n = std::get_if<std::int64_t>(&value)) return target = static_cast<double>(*n), true;
  if (const auto* n = std::get_if<std::uint64_t>(&value)) return target = static_cast<double>(*n), true;
  return false;
}

bool assign(std::string& target, const OptionValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text) target = *text;
  return text != nullptr;
}

std::string range_in_words(const OptionRule& rule) {
  std::ostringstream out;
  out.precision(12);
  const bool least = std::isfinite(rule.least), most = std::isfinite(rule.most);
  if (least && most && !rule.above) {
    out << rule.least << " to " << rule.most;
  } else {
    if (least) out << (rule.above ? "above " : "at least ") << rule.least;
    if (most) out << (least ? ", up to " : "up to ") << rule.most;
  }
  if ((least || most) && !rule.unit.empty()) out << " " << rule.unit;
  return out.str();
}

std::string wanted(const OptionInfo& option) {
  std::string words = option.type == "flag"    ? "True or False"
                      : option.type == "real"  ? "a number"
                      : option.type == "text"  ? "text"
                      : option.type == "whole" ? "a whole number"
                                               : "one of " + listed(option.choices);
  if (!option.range.empty()) {
    words += " (" + option.range + ")";
  } else if (!option.unit.empty()) {
    words += " of " + option.unit;
  }
  return words;
}

std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

void refuse_option(std::string_view what, const std::string& why) {
  throw std::invalid_argument(std::string(what) + ": " + why);
}

void refuse_unknown_option(std::string_view what, const std::string& option, const std::vector<std::string>& known) {
  refuse_option(what, "no option " + option + "; there are " + listed(known));
}

}  // namespace loomnet
