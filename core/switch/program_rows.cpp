#include "switch/program_rows.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet {
namespace {
[[noreturn]] void refuse(std::string_view field, const std::string& what) {
  throw std::invalid_argument(std::string(field) + ": " + what);
}
}  // namespace

const RowValue& ProgramRow::at(std::string_view field) const {
  const auto found = values.find(field);
  if (found == values.end()) refuse(field, "a row must have it");
  return found->second;
}

std::uint64_t ProgramRow::up_to(std::string_view field, std::uint64_t most) const {
  const auto* value = std::get_if<std::uint64_t>(&at(field));
  if (!value) refuse(field, "a number");
  return checked(field, *value, most);
}

std::uint64_t ProgramRow::checked(std::string_view field, std::uint64_t value, std::uint64_t most) {
  if (value > most) refuse(field, std::to_string(value) + " is above " + std::to_string(most));
  return value;
}

const std::string& ProgramRow::text(std::string_view field) const {
  const auto* value = std::get_if<std::string>(&at(field));
  if (!value) refuse(field, "a text or bytes");
  return *value;
}

const RowPairs& ProgramRow::pairs_of(std::string_view field) const {
  const auto* value = std::get_if<RowPairs>(&at(field));
  if (!value) refuse(field, "pairs of numbers");
  return *value;
}

const std::vector<ProgramRow>& rows_of(const ProgramRows& rows, std::string_view table) {
  static const std::vector<ProgramRow> kNone;
  const auto found = rows.find(table);
  return found == rows.end() ? kNone : found->second;
}

void check_tables(const ProgramRows& rows, std::initializer_list<std::string_view> known) {
  for (const auto& [name, table] : rows) {
    if (std::ranges::find(known, std::string_view(name)) == known.end()) {
      throw std::invalid_argument("the switch program has no table \"" + name + "\"");
    }
  }
}

}  // namespace loomnet
