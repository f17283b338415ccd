// Small packets for scripts of one state machine: fragments of 64 values of which few are real.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "transport/ina/fragment.hpp"

namespace loomnet::ina::test {

inline InaOptions small(aggregate_scheme scheme = AGGREGATE_ESA, std::uint32_t window = 4) {
  InaOptions options;
  options.scheme = scheme;
  options.values = 64;
  options.window = window;
  options.pool = 1000;
  options.rto_first = microseconds(1000);
  options.rto_min = microseconds(100);
  options.switch_rtt = microseconds(1);
  options.remind_rtts = 10;
  return options;
}
inline InaJob job1(std::uint64_t workers = 7) { return {1, workers, {{20, 21}}}; }

// Values of a packet, the first as given.
inline std::vector<std::uint8_t> values_of(std::int32_t first, std::size_t values = 64) {
  std::vector<std::uint8_t> bytes(4 * values);
  if (values > 0) std::memcpy(bytes.data(), &first, 4);
  return bytes;
}
inline std::int32_t first_of(Bytes bytes) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data(), 4);
  return value;
}

inline aggregate_header header(std::uint32_t type, Sequence n, std::uint64_t workers,
                               aggregate_scheme scheme = AGGREGATE_ESA) {
  InaOptions options;
  options.scheme = scheme;
  aggregate_header h = header_of(options, 1, type, n, {});
  h.workers = workers;
  h.values = 64;
  for (unsigned w = 0; w < 64; ++w) {
    if (workers >> w & 1) {
      h.source = static_cast<std::uint8_t>(w);
      break;
    }
  }
  return h;
}

template <typename Counters>
std::map<std::string, std::uint64_t> counted(const Counters& counters) {
  std::vector<TransportCounter> all;
  counters.append(all);
  std::map<std::string, std::uint64_t> nonzero;
  for (const auto& c : all) {
    if (c.value) nonzero[std::string(c.name)] = c.value;
  }
  return nonzero;
}

// A packet that must change nothing but one counter.
struct Hostile {
  const char* counter;
  aggregate_header header;
  std::size_t bytes = 256;
};

}  // namespace loomnet::ina::test
