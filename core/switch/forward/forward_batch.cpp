// Packs and unpacks the forward program's tables, and checks them: a batch that passes fits both
// worlds.
#include "switch/forward/forward_batch.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "ebpf/forward_abi.h"
#include "packet/bytes.hpp"

namespace loomnet {
namespace {

std::string text(const UsidKey& key) {
  std::array<char, 32> out;
  std::snprintf(out.data(), out.size(), "%x:%x:%x::/48", key.block >> 16, key.block & 0xffff, key.usid);
  return out.data();
}

[[noreturn]] void refuse(const std::string& table, std::size_t row, const std::string& why) {
  throw std::invalid_argument("ForwardBatch." + table + "[" + std::to_string(row) + "]: " + why);
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
    throw std::invalid_argument("ForwardBatch." + table + ": " + text(*twice) + " stands twice");
  }
}

UsidKey leading(const Ipv6Address& a) {
  return {std::uint32_t{a[0]} << 24 | std::uint32_t{a[1]} << 16 | std::uint32_t{a[2]} << 8 | a[3],
          static_cast<std::uint16_t>(a[4] << 8 | a[5])};
}

// Packed: the number of rows of each table (u32: own_un, own_ua, fib, hosts, groups), then the rows
// in that order, in network byte order.
constexpr std::size_t kCountBytes = 5 * 4;
constexpr std::size_t kUsidBytes = 4 + 2;
constexpr std::size_t kUsidRouteBytes = kUsidBytes + 2;
constexpr std::size_t kHostRouteBytes = sizeof(Ipv6Address) + 2;
constexpr std::size_t kGroupBytes = 2;  // and two for each member

void write(ByteWriter& out, const UsidKey& key) {
  out.u32(key.block);
  out.u16(key.usid);
}
void write(ByteWriter& out, const ForwardBatch::UsidRoute& route) {
  write(out, route.key);
  out.u16(route.port);
}

UsidKey read_key(ByteReader& in) {
  const std::uint32_t block = in.u32();
  return {block, in.u16()};
}
ForwardBatch::UsidRoute read_route(ByteReader& in) {
  const UsidKey key = read_key(in);
  return {key, in.u16()};
}

// `count` comes from the bytes: no more room is taken than the bytes that are there can fill.
template <typename Row, typename Read>
void read_rows(ByteReader& in, std::uint32_t count, std::size_t least_bytes, std::vector<Row>& rows, Read read) {
  if (std::uint64_t{count} * least_bytes > in.remaining()) return in.skip(in.remaining() + 1);
  rows.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) rows.push_back(read(in));
}

}  // namespace

std::shared_ptr<const TableBatch> ForwardBatch::pack() const {
  std::size_t size = kCountBytes + own_un.size() * kUsidBytes + (own_ua.size() + fib.size()) * kUsidRouteBytes +
                     hosts.size() * kHostRouteBytes;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].size() > 0xffff) refuse("groups", i, "more than 65,535 members");
    size += kGroupBytes + 2 * groups[i].size();
  }
  auto batch = std::make_shared<TableBatch>();
  batch->generation = generation;
  batch->bytes.resize(size);
  ByteWriter out(batch->bytes);
  for (const std::size_t rows : {own_un.size(), own_ua.size(), fib.size(), hosts.size(), groups.size()}) {
    out.u32(static_cast<std::uint32_t>(rows));
  }
  for (const UsidKey& key : own_un) write(out, key);
  for (const UsidRoute& route : own_ua) write(out, route);
  for (const UsidRoute& route : fib) write(out, route);
  for (const HostRoute& host : hosts) {
    out.copy(host.address);
    out.u16(host.group);
  }
  for (const auto& group : groups) {
    out.u16(static_cast<std::uint16_t>(group.size()));
    for (const SwitchPort port : group) out.u16(port);
  }
  return batch;
}

ForwardBatch ForwardBatch::unpack(const TableBatch& batch) {
  ByteReader in(batch.bytes);
  std::array<std::uint32_t, 5> rows{};
  for (std::uint32_t& count : rows) count = in.u32();
  ForwardBatch out;
  out.generation = batch.generation;
  read_rows(in, rows[0], kUsidBytes, out.own_un, read_key);
  read_rows(in, rows[1], kUsidRouteBytes, out.own_ua, read_route);
  read_rows(in, rows[2], kUsidRouteBytes, out.fib, read_route);
  read_rows(in, rows[3], kHostRouteBytes, out.hosts, [](ByteReader& from) {
    HostRoute host;
    from.copy(host.address);
    host.group = from.u16();
    return host;
  });
  read_rows(in, rows[4], kGroupBytes, out.groups, [](ByteReader& from) {
    std::vector<SwitchPort> group;
    read_rows(from, from.u16(), sizeof(SwitchPort), group, [](ByteReader& f) { return f.u16(); });
    return group;
  });
  if (!in.ok() || in.remaining() != 0) {
    throw std::invalid_argument("ForwardBatch: " + std::to_string(batch.bytes.size()) +
                                " bytes do not hold the rows that they count");
  }
  return out;
}

void validate(const ForwardBatch& batch, std::size_t ports) {
  if (batch.generation == 0) throw std::invalid_argument("ForwardBatch.generation: must be at least 1");
  if (ports > FORWARD_MAX_PORTS) {
    throw std::invalid_argument("a switch has at most " + std::to_string(FORWARD_MAX_PORTS) + " ports, not " +
                                std::to_string(ports));
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
    throw std::invalid_argument("ForwardBatch.groups: at most " + std::to_string(FORWARD_MAX_GROUPS));
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
    const ForwardBatch::HostRoute& host = batch.hosts[i];
    if (host.group >= batch.groups.size()) {
      refuse("hosts", i, "group " + std::to_string(host.group) + " does not exist");
    }
    if (forward_unroutable(ln_load_be64(host.address.data()), ln_load_be64(host.address.data() + 8)))
      refuse("hosts", i, "unspecified, loopback, link-local or multicast");
    // Longest prefix would prefer the host, one lookup per step the uSID: allow neither.
    if (std::binary_search(routed.begin(), routed.end(), leading(host.address))) {
      refuse("hosts", i, "lies inside the uSID route " + text(leading(host.address)));
    }
    addresses.push_back(host.address);
  }
  std::sort(addresses.begin(), addresses.end());
  if (std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end()) {
    throw std::invalid_argument("ForwardBatch.hosts: an address stands twice");
  }
}

Ipv6Address address_of(std::string_view bytes) {
  Ipv6Address address;
  if (bytes.size() != address.size()) throw std::invalid_argument("hosts: an address has 16 bytes");
  std::copy(bytes.begin(), bytes.end(), address.begin());
  return address;
}

}  // namespace loomnet
