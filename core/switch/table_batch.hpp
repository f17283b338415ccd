// Forwarding tables of one switch as data: what a controller hands to a switch in either world. A
// batch replaces all tables at once; its generation says which tables decided about a packet.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "packet/ipv6.hpp"

namespace loomnet {

using SwitchPort = std::uint16_t;  // numbered from 0 in every switch

// The first 48 bits of a uSID destination: the plane's block and one uSID
// ("MRC + SRv6 multi-plane fabrics" 3.1).
struct UsidKey {
  std::uint32_t block = 0;
  std::uint16_t usid = 0;
  constexpr auto operator<=>(const UsidKey&) const = default;
  constexpr std::uint64_t packed() const { return std::uint64_t{block} << 16 | usid; }
};

// Block of plane p: fc00:<p>::/32.
constexpr std::uint32_t usid_block(unsigned plane) { return 0xfc000000u | (plane & 0xffffu); }

struct TableBatch {
  struct UsidRoute {
    UsidKey key;
    SwitchPort port = 0;
  };
  struct HostRoute {
    Ipv6Address address{};
    std::uint16_t group = 0;  // index into groups
  };
  std::uint32_t generation = 0;                 // from 1, rises with every batch of a switch
  std::vector<UsidKey> own_un;                  // own nodes: shift, then look up again
  std::vector<UsidRoute> own_ua;                // own adjacencies: shift, then leave by the port
  std::vector<UsidRoute> fib;                   // others' uSIDs: leave by the port
  std::vector<HostRoute> hosts;                 // plain IPv6, exact addresses
  std::vector<std::vector<SwitchPort>> groups;  // ECMP; an empty group drops
};

// Throws std::invalid_argument naming the table and row that does not fit a switch of `ports`
// ports: a port out of range, a uSID routed twice, a host inside a uSID's /48, an unknown group. An
// own SID may stand in the FIB too; it wins.
void validate(const TableBatch& batch, std::size_t ports);

}  // namespace loomnet
