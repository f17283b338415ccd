// Writes a ForwardBatch into the maps of ebpf/forward.bpf.c, so that an XDP switch and the engine's
// ForwardProgram run on the same tables.
#pragma once

#include <cstdint>
#include <vector>

#include "ebpf/forward_abi.h"
#include "switch/forward/forward_batch.hpp"

namespace loomnet {

// All rows of the kernel's one hash map: SIDs, hosts, group members and the generation.
struct ForwardRows {
  std::vector<forward_key> keys;
  std::vector<std::uint32_t> values;
};
ForwardRows forward_rows(const ForwardBatch& batch);

// Fills a new map and puts it in place of the old one: a packet sees all of the old tables or all
// of the new ones. `outer` is fw_tables. Takes an RCU grace period (some milliseconds), so publish
// to many switches from several threads, and never from the live loop. Throws std::invalid_argument
// for a bad batch, LiveError if the kernel refuses.
void publish_forward_tables(int outer, const ForwardBatch& batch, std::size_t ports);

}  // namespace loomnet
