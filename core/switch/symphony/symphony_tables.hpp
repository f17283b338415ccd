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
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // of a row: high, low

  explicit SymphonyTables(const SymphonyBatch& batch)  // a validated one
      : LookupTables(batch.forward), rules_(symphony_rules(batch)) {
    for (const SymphonyBatch::Job& job : batch.jobs) {
      jobs_[job.job] = {job.g, job.enable, static_cast<ln_u8>(job.mode), {}};
    }
    for (const Ipv6Address& each : symphony_addresses(batch)) {
      const auto number = static_cast<std::uint32_t>(numbers_.size() + 1);
      numbers_[key_of(each)] = number;
    }
    for (std::size_t i = 0; i < batch.rules.size(); ++i) flows_[key_of(batch.rules[i])] = i;
  }
  static Key key_of(const Ipv6Address& address) {
    return {ln_load_be64(address.data()), ln_load_be64(address.data() + 8)};
  }
  // Of a rule of the batch, whose addresses have numbers.
  Key key_of(const SymphonyBatch::Rule& rule) const {
    return {std::uint64_t{numbers_.at(key_of(rule.source))} << 32 | numbers_.at(key_of(rule.destination)),
            static_cast<std::uint64_t>(rule.carrier) << 32 | rule.port};
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
  struct Hash {
    std::size_t operator()(const Key& key) const { return ln_mix64(key.first * LN_GOLDEN ^ ln_mix64(key.second)); }
  };
  std::unordered_map<std::uint32_t, symphony_job> jobs_;
  std::unordered_map<Key, std::uint32_t, Hash> numbers_;
  std::unordered_map<Key, std::size_t, Hash> flows_;
  std::vector<symphony_rule> rules_;
};

}  // namespace loomnet
