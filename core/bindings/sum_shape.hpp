// What Python says of sums in the network, for traffic of the engine's own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "traffic/nic_executor.hpp"

namespace loomnet {

// The names and numbers that RankBridge takes for real ranks.
using SumNumbers = std::map<std::string, std::uint32_t>;

inline constexpr const char* kSumsDoc =
    "sums: {sum_slots, sum_values, sum_window, sum_scale, sum_floats, sum_servers, sum_reach} as RankBridge takes them: switches "
    "sum, and every rank has a queue pair for each server (set_sum_pair, in their order).";

inline std::optional<SumShape> sum_shape(const std::optional<SumNumbers>& given) {
  if (!given) return std::nullopt;
  SumShape made;
  for (const auto& [name, value] : *given) {
    if (name == "sum_slots")
      made.slots = value;
    else if (name == "sum_values")
      made.values = value;
    else if (name == "sum_window")
      made.window = value;
    else if (name == "sum_scale")
      made.scale = value;
    else if (name == "sum_floats")
      made.floats = value != 0;
    else if (name == "sum_servers")
      made.servers = value;
    else if (name == "sum_reach")
      made.reach = value;
    else
      throw std::invalid_argument("sums: no number " + name);
  }
  return made;
}

}  // namespace loomnet
