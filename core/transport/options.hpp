// Options by name: each has a unit, a range, a default and a sentence. One table per kind of options
// reads values into a struct, checks the struct and describes itself.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

// A value as it was given; monostate: none.
using OptionValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;
using OptionValues = std::vector<std::pair<std::string, OptionValue>>;

// A named set of options' values.
struct OptionPreset {
  std::string name, doc;
  OptionValues values;
};

struct OptionInfo {
  std::string name;
  std::string type;  // "flag", "whole", "real", "text" or "choice"
  std::string unit;  // "bytes", "ps", "bit/s", …; empty for a bare number
  OptionValue standard;
  std::string range;  // in words; empty: any value of the type
  std::vector<std::string> choices;
  std::string doc;
};

// What a row says besides its name. `field`: the name in errors where it is not that of the option.
struct OptionRule {
  std::string unit = "", doc = "";
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // `least` itself is out
  std::string range = "", field = "";
};

// False: the value is of another type or does not fit.
bool assign(bool& target, const OptionValue& value);
bool assign(std::uint64_t& target, const OptionValue& value);
bool assign(std::int64_t& target, const OptionValue& value);
bool assign(double& target, const OptionValue& value);
bool assign(std::string& target, const OptionValue& value);
template <std::unsigned_integral T>
  requires(!std::same_as<T, std::uint64_t> && !std::same_as<T, bool>)
bool assign(T& target, const OptionValue& value) {
  std::uint64_t wide = 0;
  if (!assign(wide, value) || wide > std::numeric_limits<T>::max()) return false;
  target = static_cast<T>(wide);
  return true;
}
inline bool assign(Picoseconds& t, const OptionValue& value) { return assign(t.count, value); }
inline bool assign(BitsPerSecond& r, const OptionValue& value) { return assign(r.count, value); }

inline double as_number(Picoseconds t) { return static_cast<double>(t.count); }
inline double as_number(BitsPerSecond r) { return static_cast<double>(r.count); }
inline double as_number(const std::string&) { return 0; }
template <typename T>
  requires std::is_arithmetic_v<T>
double as_number(T value) {
  return static_cast<double>(value);
}

inline OptionValue as_value(Picoseconds t) { return t.count; }
inline OptionValue as_value(BitsPerSecond r) { return r.count; }
inline OptionValue as_value(const std::string& s) { return s; }
inline OptionValue as_value(bool b) { return b; }
inline OptionValue as_value(double d) { return d; }
inline OptionValue as_value(std::int64_t n) { return n; }
template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>)
OptionValue as_value(T value) {
  return static_cast<std::uint64_t>(value);
}

std::string range_in_words(const OptionRule& rule);
// What the option takes: "a whole number (1 to 3600 ps)".
std::string wanted(const OptionInfo& option);
// "a, b, c"
std::string listed(const std::vector<std::string>& names);
[[noreturn]] void refuse_option(std::string_view what, const std::string& why);
[[noreturn]] void refuse_unknown_option(std::string_view what, const std::string& option,
                                        const std::vector<std::string>& known);

template <typename T>
class OptionTable {
 public:
  // `title`: in front of a field's name in errors about its range.
  explicit OptionTable(std::string title) : title_(std::move(title)) {}

  template <typename V>
  OptionTable& add(std::string name, V T::* member, OptionRule rule = {}) {
    using Value = std::remove_cv_t<V>;
    Row row;
    row.info = {name,
                std::is_same_v<Value, bool>          ? "flag"
                : std::is_same_v<Value, std::string> ? "text"
                : std::is_same_v<Value, double>      ? "real"
                                                     : "whole",
                rule.unit,
                as_value(T{}.*member),
                rule.range.empty() ? range_in_words(rule) : rule.range,
                {},
                rule.doc};
    row.set = [member](T& options, const OptionValue& v) { return assign(options.*member, v); };
    row.fits = [member, least = rule.least, most = rule.most, above = rule.above](const T& options) {
      const double value = as_number(options.*member);
      return (above ? value > least : value >= least) && value <= most;  // false for NaN
    };
    row.field = rule.field.empty() ? std::move(name) : std::move(rule.field);
    rows_.push_back(std::move(row));
    return *this;
  }

  // An enumeration by the names of its values, in order.
  template <typename E>
  OptionTable& choice(std::string name, E T::* member, std::vector<std::string> names, OptionRule rule = {}) {
    Row row;
    const std::string first = names[static_cast<std::size_t>(T{}.*member)];
    row.info = {name, "choice", "", OptionValue{first}, "", names, rule.doc};
    row.set = [member, names](T& options, const OptionValue& v) {
      std::string chosen;
      if (!assign(chosen, v)) return false;
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] != chosen) continue;
        options.*member = static_cast<E>(i);
        return true;
      }
      throw UnknownChoice{};
    };
    row.fits = [](const T&) { return true; };
    row.field = std::move(name);
    rows_.push_back(std::move(row));
    return *this;
  }

  // Reads every value that has a row; returns the others. `what`: whose options these are, in errors.
  // Throws std::invalid_argument for a value of a wrong type.
  OptionValues read(std::string_view what, T& options, const OptionValues& values) const {
    OptionValues others;
    for (const auto& [name, value] : values) {
      const Row* row = find(name);
      if (!row) {
        others.emplace_back(name, value);
        continue;
      }
      try {
        if (!row->set(options, value)) refuse_option(what, name + " has the wrong type, which is " + wanted(row->info));
      } catch (const UnknownChoice&) {
        refuse_option(what, name + " must be one of " + listed(row->info.choices));
      }
    }
    return others;
  }
  // Throws std::invalid_argument naming the first field out of its range.
  void check(const T& options) const {
    for (const Row& row : rows_) {
      if (!row.fits(options)) refuse_option(title_ + "." + row.field, row.info.range);
    }
  }
  std::vector<OptionInfo> describe() const {
    std::vector<OptionInfo> out;
    for (const Row& row : rows_) out.push_back(row.info);
    return out;
  }

 private:
  struct UnknownChoice {};
  struct Row {
    OptionInfo info;
    std::string field;
    std::function<bool(T&, const OptionValue&)> set;
    std::function<bool(const T&)> fits;
  };
  const Row* find(std::string_view name) const {
    for (const Row& row : rows_) {
      if (row.info.name == name) return &row;
    }
    return nullptr;
  }
  std::string title_;
  std::vector<Row> rows_;
};

}  // namespace loomnet
