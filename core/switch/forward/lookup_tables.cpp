// Builds the engine's lookup tables. Own SIDs go in first, so that a FIB row of the same key loses.
#include "switch/forward/lookup_tables.hpp"

#include <algorithm>
#include <bit>

namespace loomnet {
namespace {

// At least twice the rows and at least two slots: a probe always meets an empty one.
std::size_t slots_for(std::size_t rows) { return std::bit_ceil(rows * 2 + 2); }
unsigned shift_for(std::size_t slots) { return 64u - static_cast<unsigned>(std::countr_zero(slots)); }

}  // namespace

LookupTables::LookupTables(const ForwardBatch& batch) {
  if (!make_pages(batch)) {
    sids_.resize(slots_for(batch.own_un.size() + batch.own_ua.size() + batch.fib.size()));
    sid_mask_ = sids_.size() - 1;
    sid_shift_ = shift_for(sids_.size());
    for (const UsidKey& key : batch.own_un) add_sid(key, FORWARD_SID_UN);
    for (const auto& route : batch.own_ua) add_sid(route.key, FORWARD_SID_UA | route.port);
    for (const auto& route : batch.fib) add_sid(route.key, FORWARD_SID_FIB | route.port);
  }
  for (const auto& group : batch.groups) {
    Group g{0, static_cast<std::uint16_t>(group.size()), !group.empty()};
    for (std::size_t i = 1; i < group.size(); ++i) g.in_a_row &= group[i] == group[0] + i;
    if (g.in_a_row) {
      g.begin = group[0];
    } else {
      g.begin = static_cast<std::uint32_t>(members_.size());
      members_.insert(members_.end(), group.begin(), group.end());
    }
    groups_.push_back(g);
  }
  if (make_dense(batch)) return;
  hosts_.resize(slots_for(batch.hosts.size()));
  host_mask_ = hosts_.size() - 1;
  host_shift_ = shift_for(hosts_.size());
  for (const auto& host : batch.hosts) {
    const auto size = static_cast<std::uint32_t>(batch.groups[host.group].size());
    add_host(host.address, forward_host_row(host.group, size));
  }
}

// All uSIDs in one block, on at most 16 pages.
bool LookupTables::make_pages(const ForwardBatch& batch) {
  std::size_t pages = 0;
  const auto plan = [&](const UsidKey& key) {
    if (block_ == kNoBlock) block_ = key.block;
    std::uint8_t& page = page_of_[key.usid >> 8];
    if (page == 0) page = static_cast<std::uint8_t>(++pages);
    return key.block == block_ && pages <= 16;
  };
  bool fits = true;
  for (const UsidKey& key : batch.own_un) fits = fits && plan(key);
  for (const auto& route : batch.own_ua) fits = fits && plan(route.key);
  for (const auto& route : batch.fib) fits = fits && plan(route.key);
  if (!fits) {
    block_ = kNoBlock;
    page_of_.fill(0);
    return false;
  }
  pages_.assign(pages * 256, 0);
  const auto add = [&](const UsidKey& key, std::uint32_t row) {
    std::uint16_t& slot = pages_[(page_of_[key.usid >> 8] - 1u) * 256 + (key.usid & 0xff)];
    if (slot == 0) slot = static_cast<std::uint16_t>(row);
  };
  for (const UsidKey& key : batch.own_un) add(key, FORWARD_SID_UN);
  for (const auto& route : batch.own_ua) add(route.key, FORWARD_SID_UA | route.port);
  for (const auto& route : batch.fib) add(route.key, FORWARD_SID_FIB | route.port);
  return true;
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

// All addresses within one range of less than four times their number.
bool LookupTables::make_dense(const ForwardBatch& batch) {
  if (batch.hosts.empty()) return true;
  if (groups_.size() > kPortGroup) return false;
  const auto low_of = [](const auto& host) { return ln_load_be64(host.address.data() + 8); };
  dense_high_ = ln_load_be64(batch.hosts.front().address.data());
  std::uint64_t least = ~0ull, most = 0;
  for (const auto& host : batch.hosts) {
    if (ln_load_be64(host.address.data()) != dense_high_) return false;
    least = std::min(least, low_of(host));
    most = std::max(most, low_of(host));
  }
  if (most - least >= 4 * batch.hosts.size()) return false;
  ports_as_groups_ = true;
  dense_low_ = least;
  dense_.assign(most - least + 1, 0);
  for (const auto& host : batch.hosts) {
    const auto& group = batch.groups[host.group];
    dense_[low_of(host) - least] =
        static_cast<std::uint16_t>(group.size() == 1 ? kOnePort | group.front() : host.group + 1u);
  }
  return true;
}

std::size_t LookupTables::bytes() const {
  return pages_.size() * sizeof(pages_[0]) + dense_.size() * sizeof(dense_[0]) + sids_.size() * sizeof(sids_[0]) +
         hosts_.size() * sizeof(Host) + groups_.size() * sizeof(Group) + members_.size() * sizeof(members_[0]);
}

}  // namespace loomnet
