// What one host's TCP counts, by the names that reports show. Packets unless the name says bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/transport.hpp"

namespace loomnet::tcp {

struct Counters {
  // sending
  std::uint64_t packets_sent = 0, bytes_sent = 0, retransmitted = 0, retransmitted_bytes = 0, acks_sent = 0,
                resets_sent = 0, sack_blocks_sent = 0, dsack_sent = 0, ect_sent = 0, cwr_sent = 0, handshakes_sent = 0;
  // acknowledgements
  std::uint64_t acks_received = 0, acks_stale = 0, acks_out_of_range = 0, sack_blocks_received = 0,
                sack_blocks_invalid = 0, dsack_received = 0, sack_reneged = 0, ece_received = 0;
  // recovery
  std::uint64_t marked_lost = 0, fast_recoveries = 0, ecn_reductions = 0, rto = 0, tlp = 0, tlp_recoveries = 0,
                rack_timeouts = 0, spurious_recoveries = 0, spurious_rto = 0, window_probes = 0, idle_restarts = 0;
  // receiving
  std::uint64_t segments_received = 0, bytes_placed = 0, out_of_order_kept = 0, duplicates_dropped = 0,
                beyond_window_dropped = 0, reassembly_full_dropped = 0, ce_received = 0, delayed_acks = 0;
  // what was wrong with a packet
  std::uint64_t malformed_dropped = 0, not_tcp_dropped = 0, corrupt_dropped = 0, unknown_connection_dropped = 0,
                wrong_port_dropped = 0, unexpected_flags_dropped = 0, resets_received = 0, resets_invalid_dropped = 0,
                failed_connection_dropped = 0, handshakes_received = 0, framing_errors = 0, access_errors = 0;
  // work
  std::uint64_t immediates_delivered = 0, messages_posted = 0, messages_completed = 0, messages_failed = 0,
                posts_unknown_qp = 0, connections_failed = 0, rerouted = 0;

  void list(std::vector<TransportCounter>& out) const;
};

}  // namespace loomnet::tcp
