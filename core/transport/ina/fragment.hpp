// Fragments as the hosts name them, packets as they leave, and the checks that every packet passes.
#pragma once

#include <cstdint>
#include <span>

#include "transport/ina/counters.hpp"
#include "transport/ina/options.hpp"

namespace loomnet::ina {

// Number of a fragment over the whole life of its job: 32 bits on the wire, 64 here, so that only these
// two functions know of the wrap.
using Sequence = std::int64_t;
constexpr std::uint32_t on_wire(Sequence n) { return static_cast<std::uint32_t>(n); }
// The number closest to `about` that `wire` stands for (serial arithmetic).
constexpr Sequence unwrap(std::uint32_t wire, Sequence about) {
  return about + static_cast<std::int32_t>(wire - on_wire(about));
}

using Bytes = std::span<const std::uint8_t>;  // int32, little-endian, at any alignment

// One worker's part of a fragment. The bytes stay readable and unchanged until the worker releases the
// fragment: a retransmission carries the same values as the first packet, or sums would differ.
struct Contribution {
  Bytes values;               // none: a fragment that carries an exponent alone (BOOT)
  std::int8_t exponent = 0;   // combined by maximum
  std::uint8_t priority = 128;
  bool boot = false;
  bool nonfinite = false;     // the block held NaN or infinity
  bool floats = false;        // float32, which the server adds and no switch touches
  bool first_of_tensor = false;
};

// A packet to send. `values` stays valid until the next call that changes its sender.
struct Outgoing {
  aggregate_header header{};
  Sequence sequence = 0;
  Bytes values;                   // real ones
  std::uint32_t wire_values = 0;  // int32 on the wire: zeros behind `values`
};

// What a packet was to a worker.
struct Received {
  enum class Kind : std::uint8_t { nothing, result, nak };
  Kind kind = Kind::nothing;
  Sequence sequence = 0;
  Bytes values;  // of a result: the sum, `Contribution::values`' length
  std::int8_t exponent = 0;
  std::uint8_t flags = 0;  // AGGREGATE_NONFINITE, AGGREGATE_OVERFLOW, AGGREGATE_ECN
};

constexpr std::uint64_t bit(unsigned worker) { return std::uint64_t{1} << worker; }
constexpr std::uint32_t clock_us(Picoseconds now) { return static_cast<std::uint32_t>(now.count / 1'000'000); }

inline aggregate_header header_of(const InaOptions& options, std::uint16_t job, std::uint32_t type, Sequence n,
                                  Picoseconds now) {
  aggregate_header header{};
  header.version_scheme = static_cast<std::uint8_t>(AGGREGATE_VERSION << 4 | options.scheme);
  header.type = static_cast<std::uint8_t>(type);
  header.job = job;
  header.sequence = on_wire(n);
  header.next_index = AGGREGATE_NO_INDEX;
  header.time = clock_us(now);
  return header;
}

// Counts and returns false for a packet of another version, scheme or job, with bits outside the mask,
// or with fewer bytes than its fragment has. A NAK has no values.
template <typename Counters>
bool sound(const aggregate_header& header, Bytes payload, const InaOptions& options, const InaJob& job,
           Counters& counters) {
  if (header.version_scheme != (AGGREGATE_VERSION << 4 | options.scheme)) return ++counters.drop_version, false;
  if (header.job != job.job) return ++counters.drop_job, false;
  if (header.type >= AGGREGATE_TYPES) return ++counters.drop_type, false;
  if (header.workers & ~job.workers) return ++counters.drop_workers, false;
  if (header.type == AGGREGATE_NAK) return true;
  const bool boot = header.flags & AGGREGATE_BOOT;
  if (header.values > options.values || (boot && header.values != 0)) return ++counters.drop_values, false;
  if (!boot && payload.size() < 4 * std::size_t{options.values}) return ++counters.drop_short, false;
  return true;
}

// A worker's packet, without its index.
inline Outgoing packet_of(const Contribution& own, const InaOptions& options, std::uint16_t job, unsigned worker,
                          std::uint32_t type, Sequence n, Picoseconds now) {
  Outgoing out;
  out.sequence = n;
  out.header = header_of(options, job, type, n, now);
  out.header.flags = static_cast<std::uint8_t>((own.boot ? AGGREGATE_BOOT : 0u) |
                                               (own.floats ? AGGREGATE_FLOATS | AGGREGATE_BYPASS : 0u) |
                                               (own.nonfinite ? AGGREGATE_NONFINITE : 0u));
  out.header.priority = own.priority;
  out.header.values = static_cast<std::uint16_t>(own.values.size() / 4);
  out.header.source = static_cast<std::uint8_t>(worker);
  out.header.exponent = static_cast<std::uint8_t>(own.exponent);
  out.header.workers = bit(worker);
  out.values = own.values;
  out.wire_values = own.boot ? 0 : options.values;
  return out;
}

// Counts and returns false for a RESULT of another shape than the contribution.
inline bool fits(const aggregate_header& header, const Contribution& own, WorkerCounters& counters) {
  if (own.boot != static_cast<bool>(header.flags & AGGREGATE_BOOT)) return ++counters.drop_boot, false;
  if (own.floats != static_cast<bool>(header.flags & AGGREGATE_FLOATS)) return ++counters.drop_floats, false;
  if (header.values * std::size_t{4} != own.values.size()) return ++counters.drop_values, false;
  return true;
}

inline Received result_of(const aggregate_header& header, Bytes payload, Sequence n) {
  return {Received::Kind::result, n, payload.first(header.values * std::size_t{4}),
          static_cast<std::int8_t>(header.exponent), static_cast<std::uint8_t>(header.flags & AGGREGATE_STICKY)};
}

// Throws std::invalid_argument for a contribution that no fragment can have.
void check(const Contribution& contribution, const InaOptions& options);

}  // namespace loomnet::ina
