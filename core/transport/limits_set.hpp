// Limits of a sender that its user sets, as a learning agent does.
#pragma once

#include <cstdint>
#include <optional>

namespace loomnet {

// A limit without a value stays as it is.
struct LimitsSet {
  std::optional<std::uint64_t> cwnd;  // bytes that may be in flight, at least a packet
  std::optional<double> pacing_rate;  // bits per second; 0: not paced
};

}  // namespace loomnet
