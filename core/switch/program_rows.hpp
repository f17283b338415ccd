// A program's own rows as they come from outside the engine: tables by name, rows of named values. The program packs
// them into a TableBatch, behind forward's.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace loomnet {

using RowPairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
using RowValue = std::variant<std::monostate, std::uint64_t, std::string, RowPairs>;

// Each throws std::invalid_argument naming the field that is missing, of another type or too large.
class ProgramRow {
 public:
  std::map<std::string, RowValue, std::less<>> values;

  template <typename T>
  T number(std::string_view field) const {
    return static_cast<T>(up_to(field, limit<T>()));
  }
  // Nothing where the row has None.
  template <typename T>
  std::optional<T> number_if(std::string_view field) const {
    if (std::holds_alternative<std::monostate>(at(field))) return std::nullopt;
    return number<T>(field);
  }
  const std::string& text(std::string_view field) const;  // or bytes
  template <typename First, typename Second>
  std::vector<std::pair<First, Second>> pairs(std::string_view field) const {
    std::vector<std::pair<First, Second>> found;
    for (const auto& [first, second] : pairs_of(field)) {
      found.emplace_back(static_cast<First>(checked(field, first, limit<First>())),
                         static_cast<Second>(checked(field, second, limit<Second>())));
    }
    return found;
  }

 private:
  template <typename T>
  static constexpr std::uint64_t limit() {
    return static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  }
  const RowValue& at(std::string_view field) const;
  const RowPairs& pairs_of(std::string_view field) const;
  std::uint64_t up_to(std::string_view field, std::uint64_t most) const;
  static std::uint64_t checked(std::string_view field, std::uint64_t value, std::uint64_t most);
};

using ProgramRows = std::map<std::string, std::vector<ProgramRow>, std::less<>>;

// The rows of a table; none where there is no such table.
const std::vector<ProgramRow>& rows_of(const ProgramRows& rows, std::string_view table);
// Throws std::invalid_argument for a table by another name than these.
void check_tables(const ProgramRows& rows, std::initializer_list<std::string_view> known);

}  // namespace loomnet
