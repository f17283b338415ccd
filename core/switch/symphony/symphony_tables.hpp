// A SymphonyBatch as the engine looks it up: forward's tables first, so that the program falls through
// to ebpf/forward.h with the same pointer.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "switch/forward/lookup_tables.hpp"
#include "switch/symphony/symphony_batch.hpp"

namespace loomnet {

class SymphonyTables : public LookupTables {
 public:
  explicit SymphonyTables(const SymphonyBatch& batch)  // a validated one
      : LookupTables(batch.forward), rules_(symphony_rules(batch)) {
    for (const SymphonyBatch::Job& job : batch.jobs) {
      jobs_[job.job] = {job.g, job.enable, static_cast<ln_u8>(job.mode), {}};
    }
    for (const Ipv6Address& each : symphony_addresses(batch)) {
      const auto number = static_cast<std::uint32_t>(numbers_.size() + 1);
      numbers_[{ln_load_be64(each.data()), ln_load_be64(each.data() + 8)}] = number;
    }
    for (std::size_t i = 0; i < batch.rules.size(); ++i) {
      const SymphonyBatch::Rule& rule = batch.rules[i];
      flows_[{std::uint64_t{number(rule.source)} << 32 | number(rule.destination),
              static_cast<std::uint64_t>(rule.carrier) << 32 | rule.port}] = i;
    }
  }
  // Null or 0: none.
  const symphony_job* job(std::uint32_t number) const {
    const auto found = jobs_.find(number);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  std::uint32_t address(std::uint64_t high, std::uint64_t low) const {
    const auto found = numbers_.find({high, low});
    return found == numbers_.end() ? 0 : found->second;
  }
  const symphony_rule* flow(std::uint64_t ends, std::uint64_t port) const {
    const auto found = flows_.find({ends, port});
    return found == flows_.end() ? nullptr : &rules_[found->second];
  }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return ln_mix64(key.first * LN_GOLDEN ^ ln_mix64(key.second));
    }
  };
  std::uint32_t number(const Ipv6Address& of) const {
    return address(ln_load_be64(of.data()), ln_load_be64(of.data() + 8));
  }
  std::unordered_map<std::uint32_t, symphony_job> jobs_;
  std::unordered_map<Key, std::uint32_t, Hash> numbers_;
  std::unordered_map<Key, std::size_t, Hash> flows_;
  std::vector<symphony_rule> rules_;
};

}  // namespace loomnet
