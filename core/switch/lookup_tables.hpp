// A TableBatch as the engine looks it up: two open-addressing tables at most half full and one
// array of ECMP members, about 16 bytes per uSID row and 48 per host.
#pragma once

#include <cstdint>
#include <vector>

#include "ebpf/forward_abi.h"
#include "switch/table_batch.hpp"

namespace loomnet {

class LookupTables {
 public:
  explicit LookupTables(const TableBatch& batch);  // a validated one

  // Rows as ebpf/forward_abi.h packs them; 0: none.
  std::uint32_t sid(std::uint64_t key) const {
    for (std::size_t i = key * LN_GOLDEN >> sid_shift_;; i = (i + 1) & sid_mask_) {
      const std::uint64_t row = sids_[i];
      if (row == 0) return 0;
      if (row >> 16 == key) return static_cast<std::uint32_t>(row & 0xffff);
    }
  }
  std::uint32_t host(std::uint64_t high, std::uint64_t low) const {
    for (std::size_t i = host_hash(high, low) >> host_shift_;; i = (i + 1) & host_mask_) {
      const Host& row = hosts_[i];
      if (row.row == 0) return 0;
      if (row.low == low && row.high == high) return row.row;
    }
  }
  std::uint32_t member(std::uint32_t group, std::uint32_t index) const {
    if (group + 1 >= offsets_.size()) return 0;
    const std::uint32_t at = offsets_[group] + index;
    return at < offsets_[group + 1] ? FORWARD_FOUND | members_[at] : 0;
  }
  std::size_t bytes() const;

 private:
  struct Host {
    std::uint64_t high = 0, low = 0;
    std::uint32_t row = 0;
  };
  static std::uint64_t host_hash(std::uint64_t high, std::uint64_t low) {
    return ((high ^ low >> 32) * LN_GOLDEN ^ low) * LN_GOLDEN;
  }
  void add_sid(const UsidKey& key, std::uint32_t row);
  void add_host(const Ipv6Address& address, std::uint32_t row);

  std::vector<std::uint64_t> sids_;  // key << 16 | row
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> offsets_;  // group g has members_[offsets_[g]] to offsets_[g + 1]
  std::vector<SwitchPort> members_;
  std::size_t sid_mask_ = 0, host_mask_ = 0;
  unsigned sid_shift_ = 0, host_shift_ = 0;
};

}  // namespace loomnet
