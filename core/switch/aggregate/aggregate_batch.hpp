// The aggregation program's tables as rows: forward's, and each job's place in its tree as the switch
// sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ebpf/aggregate_abi.h"
#include "switch/forward/forward_batch.hpp"
#include "switch/program_rows.hpp"

namespace loomnet {

struct AggregateBatch {
  // A way down: one worker, or a switch with the workers below it.
  struct Child {
    SwitchPort port = 0;
    std::uint64_t workers = 0;  // bitmap
    bool operator==(const Child&) const = default;
  };
  struct Hop {
    std::uint16_t hop = 0;  // number of a switch below, as aggregate_config has it
    SwitchPort port = 0;
    bool operator==(const Hop&) const = default;
  };
  struct Job {
    std::uint16_t job = 0;
    aggregate_scheme scheme = AGGREGATE_ESA;
    aggregate_root root = AGGREGATE_INNER;
    std::uint32_t window = 1;  // fragments
    std::uint32_t base = 0;    // SwitchML: the first of its 2 * window slots
    SwitchPort up = 0;         // towards the parameter server
    Ipv6Address server{};
    std::vector<Child> children;  // no worker below two of them
    std::vector<Hop> hops;
    bool operator==(const Job&) const = default;
  };
  ForwardBatch forward;  // its generation is the batch's
  std::vector<Job> jobs;
  bool operator==(const AggregateBatch&) const = default;

  // Group g of the TableBatch has the ports of jobs[g]'s children; behind these, in order, each job of
  // AGGREGATE_ANSWERS has a group of them and `up`. Throws std::invalid_argument for more
  // rows than 16 bits can count.
  std::shared_ptr<const TableBatch> pack() const;
  // Throws std::invalid_argument for bytes that pack() does not write. The rows may still not fit a
  // switch: see validate().
  static AggregateBatch unpack(const TableBatch& batch);
};

// Throws std::invalid_argument naming the job and field that does not fit a switch of `ports` ports: a
// port out of range, a job without workers or that stands twice, a window of 0 or
// beyond half of the sequence numbers, a worker below two ports. Also what ForwardBatch refuses; a port
// with two children is refused with the groups.
// A job from {'job', 'scheme' (aggregate_scheme), 'root' (aggregate_root), 'window' (fragments), 'base', 'up' (port),
// 'server' (address), 'children': [(port, bitmap of workers)], 'hops': [(switch number, port)]}.
AggregateBatch::Job aggregate_job_of(const ProgramRow& row);

void validate(const AggregateBatch& batch, std::size_t ports);

}  // namespace loomnet
