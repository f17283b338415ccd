// An AggregateBatch as the engine looks it up: forward's tables first, so that the program falls
// through to ebpf/forward.h with the same pointer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ebpf/aggregate_abi.h"
#include "switch/aggregate/aggregate_batch.hpp"
#include "switch/forward/lookup_tables.hpp"

namespace loomnet {

// Each job's row as both builds read it.
std::vector<aggregate_job> aggregate_rows(const AggregateBatch& batch);

class AggregateTables : public LookupTables {
 public:
  AggregateTables(const AggregateBatch& batch, std::size_t ports);  // a validated one

  // Null: none.
  const aggregate_job* job(std::uint32_t number) const {
    if (number >= place_.size() || place_[number] == 0) return nullptr;
    return &jobs_[place_[number] - 1u].row;
  }
  std::uint64_t below(std::uint32_t number, std::uint32_t port) const {
    const Job* found = find(number);
    return found && port < found->below.size() ? found->below[port] : 0;
  }
  // A port with AGGREGATE_FOUND above it; 0: none.
  std::uint32_t worker(std::uint32_t number, std::uint32_t worker) const {
    const Job* found = find(number);
    return found && worker < AGGREGATE_MAX_WORKERS ? found->workers[worker] : 0;
  }
  std::uint32_t hop(std::uint32_t number, std::uint32_t hop) const;

 private:
  struct Job {
    aggregate_job row;
    std::vector<std::uint64_t> below;  // by port
    std::array<std::uint32_t, AGGREGATE_MAX_WORKERS> workers{};
    std::vector<AggregateBatch::Hop> hops;
  };
  const Job* find(std::uint32_t number) const {
    return number < place_.size() && place_[number] ? &jobs_[place_[number] - 1u] : nullptr;
  }
  std::vector<std::uint16_t> place_;  // by job number, 1 and up: its place in jobs_
  std::vector<Job> jobs_;
};

}  // namespace loomnet
