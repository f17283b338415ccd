// What a caller may ask of the executor, checked before anything starts.
#pragma once

#include <cstdint>
#include <span>

#include "collective/types.hpp"

namespace loomnet {

// Both throw std::invalid_argument saying what is wrong and what would be right. `carries_bytes`:
// memory must be there for every side that moves bytes.
void check_members(std::uint32_t id, std::span<const JobRank> members, JobRank self, std::uint32_t ranks);
void check_operation(const Operation& operation, GroupRank rank, std::uint32_t size, bool carries_bytes);

}  // namespace loomnet
