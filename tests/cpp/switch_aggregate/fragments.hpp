// Frames of the aggregation program, and a switch with three jobs to give them to.
#pragma once

#include <cstring>
#include <vector>

#include "ebpf/aggregate_abi.h"
#include "switch/aggregate/aggregate_batch.hpp"
#include "switch_registry/echo_frames.hpp"

namespace loomnet::test {

struct Fragment {
  aggregate_header header{};
  std::vector<std::int32_t> values;  // on the wire
  std::uint64_t uid = 1;
  std::uint8_t ecn = 2;  // of the IPv6 header; 3: CE
};

// DATA of one worker, one value in front and zeros behind it.
inline Fragment data(std::uint8_t scheme, std::uint16_t job, std::uint32_t sequence, unsigned worker,
                     std::int32_t value, std::uint8_t priority = 100, std::size_t values = 64) {
  Fragment f;
  f.header.version_scheme = static_cast<std::uint8_t>(AGGREGATE_VERSION << 4 | scheme);
  f.header.priority = priority;
  f.header.job = job;
  f.header.sequence = sequence;
  if (scheme == AGGREGATE_SWITCHML) f.header.index = static_cast<std::uint16_t>(sequence);
  f.header.source = static_cast<std::uint8_t>(worker);
  f.header.workers = std::uint64_t{1} << worker;
  f.header.next_index = AGGREGATE_NO_INDEX;
  f.header.values = static_cast<std::uint16_t>(values);
  f.values.assign(values, 0);
  f.values[0] = value;
  return f;
}

inline std::vector<std::uint8_t> frame_of(const Fragment& f) {
  std::vector<std::uint8_t> frame =
      udp_frame("fd00::1", AGGREGATE_UDP_PORT, AGGREGATE_HEADER + 4 * f.values.size(), f.uid, 0);
  frame[15] = static_cast<std::uint8_t>((frame[15] & 0xcf) | f.ecn << 4);
  std::memcpy(frame.data() + AGGREGATE_AT, &f.header, sizeof f.header);
  if (!f.values.empty()) std::memcpy(frame.data() + AGGREGATE_PAYLOAD_AT, f.values.data(), 4 * f.values.size());
  return frame;
}

inline Fragment fragment_of(std::span<const std::uint8_t> frame) {
  Fragment f;
  f.values.resize((frame.size() - AGGREGATE_PAYLOAD_AT) / 4);
  std::memcpy(&f.header, frame.data() + AGGREGATE_AT, sizeof f.header);
  if (!f.values.empty()) std::memcpy(f.values.data(), frame.data() + AGGREGATE_PAYLOAD_AT, 4 * f.values.size());
  return f;
}

// A job whose workers 0 … n - 1 are behind ports 1 … n; its server, fd00::<job>, behind port 0.
inline AggregateBatch::Job job_of(std::uint16_t number, unsigned workers, aggregate_scheme scheme = AGGREGATE_ESA,
                                  std::uint32_t window = 4) {
  AggregateBatch::Job job;
  job.job = number;
  job.scheme = scheme;
  job.root = AGGREGATE_ROOT;
  job.window = window;
  job.up = 0;
  job.server = address("fd00::");
  job.server[15] = static_cast<std::uint8_t>(number);
  for (unsigned w = 0; w < workers; ++w) {
    job.children.push_back({static_cast<SwitchPort>(w + 1), std::uint64_t{1} << w});
  }
  return job;
}

inline std::shared_ptr<const TableBatch> aggregate_tables(std::vector<AggregateBatch::Job> jobs, std::size_t ports,
                                                          std::uint32_t generation = 1) {
  AggregateBatch batch;
  batch.forward = ForwardBatch::unpack(*host_tables(ports, generation));
  batch.jobs = std::move(jobs);
  return batch.pack();
}

}  // namespace loomnet::test
