// A ForwardBatch as the engine looks it up. An address plan keeps numbers close together, and then a
// uSID or a host takes two bytes, so that a switch's tables stay in the caches: pages of 256 uSIDs
// where all have one block, an array where host addresses fill a range. Any other batch goes into
// open-addressing tables at most half full.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ebpf/forward_abi.h"
#include "switch/forward/forward_batch.hpp"

namespace loomnet {

class LookupTables {
 public:
  explicit LookupTables(const ForwardBatch& batch);  // a validated one

  // Rows as ebpf/forward_abi.h packs them; 0: none.
  std::uint32_t sid(std::uint64_t key) const {
    if (key >> 16 == block_) {
      const std::uint8_t page = page_of_[key >> 8 & 0xff];
      return page ? pages_[(page - 1u) * 256 + (key & 0xff)] : 0;
    }
    if (sids_.empty()) return 0;
    for (std::size_t i = key * LN_GOLDEN >> sid_shift_;; i = (i + 1) & sid_mask_) {
      const std::uint64_t row = sids_[i];
      if (row == 0) return 0;
      if (row >> 16 == key) return static_cast<std::uint32_t>(row & 0xffff);
    }
  }
  std::uint32_t host(std::uint64_t high, std::uint64_t low) const {
    if (const std::uint64_t at = low - dense_low_; at < dense_.size()) {
      const std::uint32_t route = dense_[at];
      if (high != dense_high_ || route == 0) return 0;
      // A group with one member is encoded as kPortGroup plus the port; member() decodes it.
      if (route & kOnePort) return forward_host_row(kPortGroup | (route & (kPortGroup - 1)), 1);
      return forward_host_row(route - 1, groups_[route - 1].size);
    }
    if (hosts_.empty()) return 0;
    for (std::size_t i = host_hash(high, low) >> host_shift_;; i = (i + 1) & host_mask_) {
      const Host& row = hosts_[i];
      if (row.row == 0) return 0;
      if (row.low == low && row.high == high) return row.row;
    }
  }
  std::uint32_t member(std::uint32_t group, std::uint32_t index) const {
    if (ports_as_groups_ && group & kPortGroup) {
      return index == 0 ? FORWARD_FOUND | (group & (kPortGroup - 1)) : 0;
    }
    if (group >= groups_.size() || index >= groups_[group].size) return 0;
    const Group& g = groups_[group];
    return FORWARD_FOUND | (g.in_a_row ? g.begin + index : members_[g.begin + index]);
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
  bool make_pages(const ForwardBatch& batch);
  bool make_dense(const ForwardBatch& batch);

  // ECMP group: members_[begin] on, or ports begin on where they stand in a row.
  struct Group {
    std::uint32_t begin = 0;
    std::uint16_t size = 0;
    bool in_a_row = false;
  };
  static constexpr std::uint32_t kOnePort = 0x8000;    // in dense_
  static constexpr std::uint32_t kPortGroup = 0x4000;  // in a host row's group number
  static constexpr std::uint64_t kNoBlock = ~0ull;

  std::uint64_t block_ = kNoBlock;  // of all uSIDs; kNoBlock: they are in sids_
  std::vector<std::uint16_t> pages_;
  std::uint64_t dense_high_ = 0, dense_low_ = 0;
  // Of host (dense_high_, dense_low_ + index): kOnePort and its port, or group + 1.
  std::vector<std::uint16_t> dense_;
  std::vector<Group> groups_;
  std::vector<SwitchPort> members_;
  bool ports_as_groups_ = false;
  std::array<std::uint8_t, 256> page_of_{};  // page + 1 of usid >> 8
  std::vector<std::uint64_t> sids_;          // key << 16 | row
  std::vector<Host> hosts_;                  // empty where dense_ holds them
  std::size_t sid_mask_ = 0, host_mask_ = 0;
  unsigned sid_shift_ = 0, host_shift_ = 0;
};

}  // namespace loomnet
