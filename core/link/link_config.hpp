// What one direction of a link is built with: rate and delay, limits and thresholds of its sending
// port, Priority-based Flow Control of the port that it ends at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "clock/time.hpp"
#include "packet/packet.hpp"

namespace loomnet {

// Thresholds of the ingress port that a link's direction ends at, in bytes. xoff 0: no PFC there.
struct PfcConfig {
  std::uint64_t xoff = 0;      // more than this waiting: pause
  std::uint64_t xon = 0;       // no more than this: go on
  std::uint64_t headroom = 0;  // above xoff, for what arrives until the pause holds
};

// A discipline other than the default, with its options; made by choose_queue().
struct QueueChoice {
  std::size_t discipline = 0;         // of queue_disciplines()
  std::vector<std::int64_t> values;   // of its options, in their order
};

// Marking and trimming of one transport's packets; the fields are LinkConfig's.
struct CarrierMarks {
  std::uint64_t ecn_low = 0, ecn_high = 0;
  double ecn_share = 1;
  std::uint32_t trim_size = 128;
  std::uint8_t trim_dscp = 0;
};

struct LinkConfig {
  BitsPerSecond rate{};             // 0: no serialiser and no queue (a panel's egress)
  Picoseconds delay{};
  // Bytes: 400 Gb/s over 100 ms hold 5 GB.
  std::uint64_t data_limit = 0;     // of all data queues; 0: no limit
  std::uint64_t control_limit = 0;  // of the control queue; 0: no limit
  std::uint64_t ecn_low = 0;        // RED marking begins here (data queued at dequeue) …
  std::uint64_t ecn_high = 0;       // … and is certain from here on; 0: no marking
  double ecn_share = 1;             // probability just below ecn_high (RED's maximum)
  // Of the link, that the control queue may take while data waits: between 0 and 1, both excluded.
  double control_share = 0.25;
  bool trim = false;                // cut trimmable packets that find the data queue full
  // Which packet is cut: the arriving one (false), or by a toss of the link's own stream that one or
  // the last that waits, so that of flows in lock-step not always the same one loses.
  bool trim_coin = true;
  bool trim_fix_lengths = true;     // rewrite IPv6 and UDP lengths of a trimmed packet
  bool last_hop = false;            // the far end is a host
  std::uint32_t trim_size = 128;    // bytes of Ethernet frame a trimmed packet keeps
  std::uint8_t trim_dscp = 0;       // of a trimmed packet: its transport's code
  // Where transports of a run differ in these: by Packet::carrier; null: all packets as above.
  std::shared_ptr<const std::vector<CarrierMarks>> carriers;
  PfcConfig pfc;                    // of the switch port that this direction ends at
  // The largest frame of any transport of the run: PFC's headroom holds three.
  std::uint32_t largest_frame = kMaxFrameBytes;
  // A discipline without a control queue, marking or trimming ignores the settings of these.
  std::shared_ptr<const QueueChoice> queue;  // null: strict priority
};

}  // namespace loomnet
