// Which NICs of a server are at the region's panel, and which of them each circuit takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "circuits/assignment.hpp"

namespace loomnet::circuits {

// A server's NICs: those numbered below nics / 2 are on NUMA node 0, the others on node 1.
struct ServerNics {
  std::vector<std::uint32_t> electrical, optical;  // ascending
};
// `alpha` of `nics` are optical. The others are taken from the top of each NUMA node in turn: 7, 3, 6, 2 …
// of eight. Throws std::invalid_argument.
ServerNics server_nics(std::uint32_t nics, std::uint32_t alpha);

inline constexpr std::int32_t kNoPeer = -1;

// The panel's ports from 0: server i's optical NIC k is at port i * alpha + k. peer[p] is the port that p is
// joined to, kNoPeer: none.
struct PortMap {
  std::uint32_t servers = 0, alpha = 0;
  std::vector<std::int32_t> peer;
};

// Ports of the circuits. Ports that already join two servers are kept, as many as the two still have circuits;
// new circuits take other NUMA nodes than those before them of the same pair, then the node with more free
// NICs, then the lowest number. Pairs with more circuits, then more demand, choose first. `previous`: empty or
// of the same region. `broken`: by port, those that no circuit may take; empty: none. Throws
// std::invalid_argument.
PortMap map_ports(const Assignment& wanted, std::span<const std::uint64_t> demand,
                  const ServerNics& nics, const PortMap& previous,
                  std::span<const std::uint8_t> broken = {});

}  // namespace loomnet::circuits
