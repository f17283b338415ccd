// Builds the engine's lookup tables. Own SIDs go in first, so that a FIB row of the same key loses.
#include "switch/lookup_tables.hpp"

#include <bit>

namespace loomnet {
namespace {

// At least twice the rows and at least two slots: a probe always meets an empty one.
std::size_t slots_for(std::size_t rows) { return std::bit_ceil(rows * 2 + 2); }
unsigned shift_for(std::size_t slots) {
  return 64u - static_cast<unsigned>(std::countr_zero(slots));
}

}  // namespace

LookupTables::LookupTables(const TableBatch& batch) {
  sids_.resize(slots_for(batch.own_un.size() + batch.own_ua.size() + batch.fib.size()));
  sid_mask_ = sids_.size() - 1;
  sid_shift_ = shift_for(sids_.size());
  hosts_.resize(slots_for(batch.hosts.size()));
  host_mask_ = hosts_.size() - 1;
  host_shift_ = shift_for(hosts_.size());

  for (const UsidKey& key : batch.own_un) add_sid(key, FORWARD_SID_UN);
  for (const auto& route : batch.own_ua) add_sid(route.key, FORWARD_SID_UA | route.port);
  for (const auto& route : batch.fib) add_sid(route.key, FORWARD_SID_FIB | route.port);
  offsets_.push_back(0);
  for (const auto& group : batch.groups) {
    members_.insert(members_.end(), group.begin(), group.end());
    offsets_.push_back(static_cast<std::uint32_t>(members_.size()));
  }
  for (const auto& host : batch.hosts) {
    const auto size = static_cast<std::uint32_t>(batch.groups[host.group].size());
    add_host(host.address, forward_host_row(host.group, size));
  }
}

void LookupTables::add_sid(const UsidKey& key, std::uint32_t row) {
  const std::uint64_t packed = key.packed();
  std::size_t i = packed * LN_GOLDEN >> sid_shift_;
  for (; sids_[i] != 0; i = (i + 1) & sid_mask_) {
    if (sids_[i] >> 16 == packed) return;
  }
  sids_[i] = packed << 16 | row;
}

void LookupTables::add_host(const Ipv6Address& address, std::uint32_t row) {
  const std::uint64_t high = ln_load_be64(address.data());
  const std::uint64_t low = ln_load_be64(address.data() + 8);
  std::size_t i = host_hash(high, low) >> host_shift_;
  while (hosts_[i].row != 0) i = (i + 1) & host_mask_;
  hosts_[i] = {high, low, row};
}

std::size_t LookupTables::bytes() const {
  return sids_.size() * sizeof(sids_[0]) + hosts_.size() * sizeof(Host) +
         offsets_.size() * sizeof(offsets_[0]) + members_.size() * sizeof(members_[0]);
}

}  // namespace loomnet
