// Checks a batch of tables before it reaches a switch: what passes here fits both worlds.
#include "switch/table_batch.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include "ebpf/forward_abi.h"

namespace loomnet {
namespace {

std::string text(const UsidKey& key) {
  std::array<char, 32> out;
  std::snprintf(out.data(), out.size(), "%x:%x:%x::/48", key.block >> 16, key.block & 0xffff,
                key.usid);
  return out.data();
}

[[noreturn]] void refuse(const std::string& table, std::size_t row, const std::string& why) {
  throw std::invalid_argument("TableBatch." + table + "[" + std::to_string(row) + "]: " + why);
}

void check_port(const std::string& table, std::size_t row, SwitchPort port, std::size_t ports) {
  if (port >= ports) {
    refuse(table, row, "port " + std::to_string(port) + " of a switch of " + std::to_string(ports));
  }
}

void check_unique(const std::string& table, std::vector<UsidKey> keys) {
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    throw std::invalid_argument("TableBatch." + table + ": " + text(*twice) + " stands twice");
  }
}

bool unroutable(const Ipv6Address& a) {
  const bool zeroes = std::all_of(a.begin(), a.end() - 1, [](std::uint8_t b) { return b == 0; });
  return (zeroes && a[15] <= 1) || a[0] == 0xff || (a[0] == 0xfe && (a[1] & 0xc0) == 0x80);
}

UsidKey leading(const Ipv6Address& a) {
  return {std::uint32_t{a[0]} << 24 | std::uint32_t{a[1]} << 16 | std::uint32_t{a[2]} << 8 | a[3],
          static_cast<std::uint16_t>(a[4] << 8 | a[5])};
}

}  // namespace

void validate(const TableBatch& batch, std::size_t ports) {
  if (batch.generation == 0)
    throw std::invalid_argument("TableBatch.generation: must be at least 1");
  if (ports > FORWARD_MAX_PORTS) {
    throw std::invalid_argument("a switch has at most " + std::to_string(FORWARD_MAX_PORTS) +
                                " ports, not " + std::to_string(ports));
  }
  std::vector<UsidKey> own = batch.own_un;
  for (std::size_t i = 0; i < batch.own_ua.size(); ++i) {
    check_port("own_ua", i, batch.own_ua[i].port, ports);
    own.push_back(batch.own_ua[i].key);
  }
  check_unique("own_un and own_ua", own);
  std::vector<UsidKey> fib;
  for (std::size_t i = 0; i < batch.fib.size(); ++i) {
    check_port("fib", i, batch.fib[i].port, ports);
    fib.push_back(batch.fib[i].key);
  }
  check_unique("fib", fib);

  if (batch.groups.size() > FORWARD_MAX_GROUPS) {
    throw std::invalid_argument("TableBatch.groups: at most " + std::to_string(FORWARD_MAX_GROUPS));
  }
  for (std::size_t i = 0; i < batch.groups.size(); ++i) {
    if (batch.groups[i].size() > FORWARD_MAX_MEMBERS) {
      refuse("groups", i, "at most " + std::to_string(FORWARD_MAX_MEMBERS) + " members");
    }
    for (const SwitchPort port : batch.groups[i]) check_port("groups", i, port, ports);
  }

  std::vector<UsidKey> routed = std::move(own);
  routed.insert(routed.end(), fib.begin(), fib.end());
  std::sort(routed.begin(), routed.end());
  std::vector<Ipv6Address> addresses;
  addresses.reserve(batch.hosts.size());
  for (std::size_t i = 0; i < batch.hosts.size(); ++i) {
    const TableBatch::HostRoute& host = batch.hosts[i];
    if (host.group >= batch.groups.size()) {
      refuse("hosts", i, "group " + std::to_string(host.group) + " does not exist");
    }
    if (unroutable(host.address))
      refuse("hosts", i, "unspecified, loopback, link-local or multicast");
    // Longest prefix would prefer the host, one lookup per step the uSID: allow neither.
    if (std::binary_search(routed.begin(), routed.end(), leading(host.address))) {
      refuse("hosts", i, "lies inside the uSID route " + text(leading(host.address)));
    }
    addresses.push_back(host.address);
  }
  std::sort(addresses.begin(), addresses.end());
  if (std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end()) {
    throw std::invalid_argument("TableBatch.hosts: an address stands twice");
  }
}

}  // namespace loomnet
