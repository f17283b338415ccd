// Reading a flow's slot (ebpf/astraea_abi.h) while the kernel writes it, and writing the agent's part.
#pragma once

#include <cstdint>
#include <optional>

#include "ebpf/astraea_abi.h"

namespace loomnet::astraea {

std::uint32_t state_of(const astraea_slot& slot);

// A slot as it was at one moment; nothing where the kernel wrote during each of some tries. What the agent itself
// writes may be torn. The caller checks the values: they are the memory's, whatever is in it.
std::optional<astraea_slot> read_slot(const astraea_slot& slot);

// Whether the counters are such as a flow can have, and follow from `before`, an earlier reading of it.
bool plausible(const astraea_slot& before, const astraea_slot& now);

// One aligned store of 64 bits: no reader sees the window of one command with the stamp of another.
void write_command(astraea_slot& slot, std::uint64_t now_ns, std::uint32_t window);
void write_epoch(astraea_slot& slot, std::uint32_t epoch);
void write_settings(astraea_slot& slot, std::uint32_t flags, std::uint32_t timeout_ms);
// Gives a released slot back; nothing happens where a new flow has taken it.
void free_slot(astraea_slot& slot);

}  // namespace loomnet::astraea
