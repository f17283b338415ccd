// What a RoCE NIC can be told, with the values NCCL and common NICs ship.
#pragma once

#include <cstdint>
#include <string>

#include "clock/time.hpp"
#include "packet/step_stamp.hpp"
#include "transport/congestion.hpp"
#include "transport/roce/dscp.hpp"

namespace loomnet::roce {

// When a queue pair draws another UDP source port, and so perhaps another path: never, or with each ring step.
enum class Rehash : std::uint8_t { fixed, step };

struct RoceOptions {
  std::uint32_t payload_mtu = 2048;  // bytes; 256, 512, 1024, 2048 or 4096 (IBTA path MTUs)
  // Local ACK timeout: 4.096 us * 2^exponent, 0 = never. 20, that is 4.29 s, is the default of
  // NCCL_IB_TIMEOUT in NCCL's InfiniBand plug-in (earlier releases: 18, 14). The InfiniBand
  // Architecture (Vol. 1, 9.7.6.1.3) lets a NIC take one to four times that; here it is exact.
  std::uint8_t timeout_exponent = 20;
  // Timeouts without progress that are survived: 7 is NCCL_IB_RETRY_CNT's default. The next one
  // ends the connection, so a dead path is reported after (retry_count + 1) timeouts, 34.4 s.
  std::uint8_t retry_count = 7;
  // Without a congestion control a queue pair sends at its port's rate, with this many payload bytes
  // unacknowledged at most (0: the PSN space, 2^23 packets, is the only limit).
  std::uint64_t in_flight_limit = 0;
  double window_bdps = 0;  // the same limit in bandwidth-delay products of the port; 0: none
  std::uint32_t ack_interval = 16;  // packets between requests for an ACK inside a message
  std::uint8_t data_dscp = dscp::kBestEffort;
  // RC acknowledgements travel in the traffic class of their queue pair.
  std::uint8_t ack_dscp = dscp::kBestEffort;
  bool ack_priority = false;  // they travel in the control class instead
  bool ect = false;  // data is ECN-capable; a congestion control makes it so
  bool dcqcn = false;               // short for congestion_control = "dcqcn"
  std::string congestion_control;   // by registered name; empty: none
  OptionValues congestion_options;  // of that control
  std::uint64_t line_rate = 0;      // bit/s of a port, for the congestion control
  Picoseconds network_rtt{};        // the fabric's longest, for the same; 0: unknown
  StepIdentity identity = StepIdentity::none;  // of the ring steps of its packets
  Rehash rehash = Rehash::fixed;
  // Between congestion notifications of a queue pair; 0: one per marked packet, but for those that wait
  // to be sent together.
  Picoseconds cnp_gap = microseconds(50);
  std::string preset;  // name of a set of defaults (presets.hpp); options that are given win
  std::uint64_t seed = 0;         // of the congestion control's random streams
  std::uint32_t initial_psn = 0;  // 24 bits; exchanged out of band in a cluster, common here

  static const OptionTable<RoceOptions>& table();
  // Options by name, those of the congestion control among them. Throws std::invalid_argument.
  static RoceOptions of(const OptionValues& values);
  // Throws std::invalid_argument naming the option that is out of range.
  void check() const;
  std::string control() const { return dcqcn ? "dcqcn" : congestion_control; }
  std::uint8_t answer_dscp() const { return ack_priority ? dscp::kExpeditedForwarding : ack_dscp; }

  // The source port of a queue pair changes from one ring step to the next.
  bool port_by_step() const { return identity == StepIdentity::sport || rehash == Rehash::step; }

  constexpr Picoseconds ack_timeout() const {
    if (timeout_exponent == 0) return kNever;
    return nanoseconds(4096) * (std::int64_t{1} << timeout_exponent);
  }
};

// What a queue pair tells a congestion control.
inline constexpr Signals kSignals = signal::rtt | signal::marks | signal::notifications | signal::line_rate;

// Each part of a striped message starts at a multiple of this, as NCCL's InfiniBand plug-in splits
// a message over the NICs of one merged device.
inline constexpr std::uint32_t kStripeAlignment = 128;

// Bytes of a `length`-byte message in front of plane `plane`'s part: even shares of whole stripe
// units, what is left over missing from the last planes.
constexpr std::uint32_t stripe_begin(std::uint32_t length, std::uint32_t planes, std::uint32_t plane) {
  const std::uint64_t even = (std::uint64_t{length} + planes - 1) / planes;
  const std::uint64_t share = (even + kStripeAlignment - 1) / kStripeAlignment * kStripeAlignment;
  const std::uint64_t begin = share * plane;
  return begin < length ? static_cast<std::uint32_t>(begin) : length;
}

}  // namespace loomnet::roce
