// The symphony program's tables as rows: forward's, the jobs that are tracked where they are listed,
// and rules, each of which gives ring and rank to a flow whose packets carry no step header.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ebpf/symphony_abi.h"
#include "switch/forward/forward_batch.hpp"
#include "switch/program_rows.hpp"

namespace loomnet {

struct SymphonyBatch {
  struct Job {
    std::uint16_t job = 0;
    bool enable = true;
    symphony_mode mode = SYMPHONY_SPACED;
    std::uint32_t g = 0;  // steps; 0: as the options say
    bool operator==(const Job&) const = default;
  };
  enum class Carrier : std::uint8_t {
    udp = SYMPHONY_UDP_FLOW,  // `port` is the destination port
    tcp = SYMPHONY_TCP_FLOW,
    roce = SYMPHONY_ROCE  // `port` is the destination queue pair
  };
  struct Rule {
    Ipv6Address source{}, destination{};  // of the inner header; IPv4 as ::ffff:a.b.c.d
    Carrier carrier = Carrier::tcp;
    std::uint32_t port = SYMPHONY_ANY_PORT;
    std::uint16_t job = 0, ring = 0, rank = 0, nranks = 0;
    std::uint8_t gen = 0;
    // Of identity seq; 0 each for identity sport.
    std::uint32_t step_bytes = 0;  // that each ring step sends by this flow
    std::uint16_t mtu = 0;         // RoCE: payload of a full packet, a power of two of 256 and more
    bool known = false;            // `base` is given; else it is learnt from TCP's SYN
    std::uint32_t base = 0;        // RoCE: first PSN; TCP: first byte's sequence number
    bool operator==(const Rule&) const = default;
  };
  ForwardBatch forward;  // its generation is the batch's
  std::vector<Job> jobs;
  std::vector<Rule> rules;
  bool operator==(const SymphonyBatch&) const = default;

  // Throws std::invalid_argument for more rows than 16 bits can count.
  std::shared_ptr<const TableBatch> pack() const;
  // Throws std::invalid_argument for bytes that pack() does not write. The rows may still not fit a
  // switch: see validate().
  static SymphonyBatch unpack(const TableBatch& batch);
};

// Throws std::invalid_argument naming the row and field that cannot be: a job or a flow that stands
// twice, a rank of no ring, a ring too long for its numbers to be compared. Also what ForwardBatch
// refuses.
void validate(const SymphonyBatch& batch, std::size_t ports);

// A job from {'job', 'enable', 'prob', 'g' (steps; 0: as the options say)}.
SymphonyBatch::Job symphony_job_of(const ProgramRow& row);
// A rule from {'source', 'destination' (addresses), 'carrier' ('udp', 'tcp' or 'roce'), 'port' (None: any), 'job',
// 'ring', 'rank', 'nranks', 'gen', 'step_bytes', 'mtu', 'base' (None: learnt from TCP's SYN)}.
SymphonyBatch::Rule symphony_rule_of(const ProgramRow& row);

// Rules as both builds read them, in the order of batch.rules.
std::vector<symphony_rule> symphony_rules(const SymphonyBatch& batch);

// Addresses that rules name, each once: its number is its place plus one.
std::vector<Ipv6Address> symphony_addresses(const SymphonyBatch& batch);

}  // namespace loomnet
