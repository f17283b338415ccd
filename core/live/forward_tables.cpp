// Packs rows as ebpf/forward_abi.h says and publishes them by map-in-map replacement.
#include "live/forward_tables.hpp"

#include <bpf/bpf.h>

#include <set>

#include "live/system.hpp"

namespace loomnet {

ForwardRows forward_rows(const ForwardBatch& batch) {
  ForwardRows rows;
  const auto add = [&rows](std::uint32_t table, std::uint64_t high, std::uint64_t low,
                           std::uint32_t value) {
    rows.keys.push_back({table, 0, high, low});
    rows.values.push_back(value);
  };
  add(FORWARD_TABLE_GENERATION, 0, 0, batch.generation);
  std::set<UsidKey> own;
  for (const UsidKey& key : batch.own_un) {
    own.insert(key);
    add(FORWARD_TABLE_SID, key.packed(), 0, FORWARD_SID_UN);
  }
  for (const auto& route : batch.own_ua) {
    own.insert(route.key);
    add(FORWARD_TABLE_SID, route.key.packed(), 0, FORWARD_SID_UA | route.port);
  }
  for (const auto& route : batch.fib) {
    if (own.contains(route.key)) continue;  // own SIDs win
    add(FORWARD_TABLE_SID, route.key.packed(), 0, FORWARD_SID_FIB | route.port);
  }
  for (const auto& host : batch.hosts) {
    const auto size = static_cast<std::uint32_t>(batch.groups.at(host.group).size());
    add(FORWARD_TABLE_HOST, ln_load_be64(host.address.data()),
        ln_load_be64(host.address.data() + 8), forward_host_row(host.group, size));
  }
  for (std::size_t group = 0; group < batch.groups.size(); ++group) {
    for (std::size_t i = 0; i < batch.groups[group].size(); ++i) {
      add(FORWARD_TABLE_MEMBER, group, i, FORWARD_FOUND | batch.groups[group][i]);
    }
  }
  return rows;
}

void publish_forward_tables(int outer, const ForwardBatch& batch, std::size_t ports) {
  validate(batch, ports);
  ForwardRows rows = forward_rows(batch);
  auto count = static_cast<std::uint32_t>(rows.keys.size());
  const Fd inner = checked_fd(bpf_map_create(BPF_MAP_TYPE_HASH, "fw_rows", sizeof(forward_key),
                                             sizeof(std::uint32_t), count, nullptr),
                              "create the forwarding tables' BPF map");
  if (bpf_map_update_batch(inner.get(), rows.keys.data(), rows.values.data(), &count, nullptr)) {
    throw LiveError("fill the forwarding tables' BPF map", errno);
  }
  const std::uint32_t slot = 0;
  const int fd = inner.get();
  if (bpf_map_update_elem(outer, &slot, &fd, BPF_ANY)) {
    throw LiveError("publish forwarding tables of generation " + std::to_string(batch.generation),
                    errno);
  }
}

}  // namespace loomnet
