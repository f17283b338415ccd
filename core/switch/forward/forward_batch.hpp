// The forward program's tables as rows: what a controller fills in and packs into a TableBatch, and
// what the program unpacks in either world.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "packet/ipv6.hpp"
#include "switch/program.hpp"

namespace loomnet {

// The first 48 bits of a uSID destination: the plane's block and one uSID
// (RFC 9800).
struct UsidKey {
  std::uint32_t block = 0;
  std::uint16_t usid = 0;
  constexpr auto operator<=>(const UsidKey&) const = default;
  constexpr std::uint64_t packed() const { return std::uint64_t{block} << 16 | usid; }
};

// Block of plane p: fc00:<p>::/32.
constexpr std::uint32_t usid_block(unsigned plane) { return 0xfc000000u | (plane & 0xffffu); }

// An address from its 16 bytes. Throws std::invalid_argument.
Ipv6Address address_of(std::string_view bytes);

struct ForwardBatch {
  struct UsidRoute {
    UsidKey key;
    SwitchPort port = 0;
    bool operator==(const UsidRoute&) const = default;
  };
  struct HostRoute {
    Ipv6Address address{};
    std::uint16_t group = 0;  // index into groups
    bool operator==(const HostRoute&) const = default;
  };
  std::uint32_t generation = 0;                 // of the TableBatch
  std::vector<UsidKey> own_un;                  // own nodes: shift, then look up again
  std::vector<UsidRoute> own_ua;                // own adjacencies: shift, then leave by the port
  std::vector<UsidRoute> fib;                   // others' uSIDs: leave by the port
  std::vector<HostRoute> hosts;                 // plain IPv6, exact addresses
  std::vector<std::vector<SwitchPort>> groups;  // ECMP; an empty group drops
  bool operator==(const ForwardBatch&) const = default;

  // Throws std::invalid_argument for a group of more members than 16 bits can count.
  std::shared_ptr<const TableBatch> pack() const;
  // Throws std::invalid_argument for bytes that pack() does not write. The rows may still not fit a
  // switch: see validate().
  static ForwardBatch unpack(const TableBatch& batch);
};

// Throws std::invalid_argument naming the table and row that does not fit a switch of `ports`
// ports: a port out of range, a uSID routed twice, a host inside a uSID's /48, an unknown group. An
// own SID may stand in the FIB too; it wins.
void validate(const ForwardBatch& batch, std::size_t ports);

}  // namespace loomnet
