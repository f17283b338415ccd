// Chooses the NICs of a server that are at the region's panel, and the NIC at each end of a circuit.
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

// Chooses the ports of all circuits. A pair of servers keeps the ports that join it in `previous`, up to its number of
// circuits. For a new circuit it prefers, in this order, a NUMA node that the pair's other circuits do not use, the
// node with more free NICs, and the lowest number. Pairs with more circuits choose first, then pairs with more
// demand. `previous` is empty or of the same region. `broken`: for each port 1 where no circuit may take it; empty
// where all work. Throws std::invalid_argument.
PortMap map_ports(const Assignment& wanted, std::span<const std::uint64_t> demand, const ServerNics& nics,
                  const PortMap& previous, std::span<const std::uint8_t> broken = {});

}  // namespace loomnet::circuits
