// Every queue discipline by its name, with its options: the one place that a new discipline is
// entered in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link/link_config.hpp"
#include "link/port_queue.hpp"

namespace loomnet {

struct QueueOption {
  enum class Unit : std::uint8_t { picoseconds, bytes, count, on_off };
  std::string_view name;
  Unit unit = Unit::count;
  std::int64_t preset = 0, least = 0, most = 0;
};
std::string_view to_string(QueueOption::Unit unit);

struct QueueDiscipline {
  std::string_view name;
  std::span<const QueueOption> options;
  // Values are in the order of `options`.
  std::unique_ptr<PortQueue> (*make)(SendingPort& port, const LinkConfig& config, std::span<const std::int64_t> values);
};

inline constexpr std::string_view kDefaultDiscipline = "priority";
// The default first. It is part of every half-link: make_queue is for the others.
std::span<const QueueDiscipline> queue_disciplines();

// The choice of a discipline by name, options that are not given at their presets. Null for the
// default. Throws std::invalid_argument for an unknown name or option, or a value out of range.
std::shared_ptr<const QueueChoice> choose_queue(std::string_view name,
                                                std::span<const std::pair<std::string, std::int64_t>> options);
std::unique_ptr<PortQueue> make_queue(SendingPort& port, const LinkConfig& config);

}  // namespace loomnet
