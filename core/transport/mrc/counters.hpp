// Everything MRC counts, by name: each drop and each action of one NIC.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "transport/transport.hpp"

namespace loomnet::mrc {

enum class Count : std::uint8_t {
  data_sent,
  data_retransmitted,
  data_received,
  data_duplicate,
  bytes_placed,
  messages_posted,
  messages_completed,
  immediates_delivered,
  sack_sent,
  sack_received,
  nack_sent,
  nack_received,
  nak_sent,
  nak_received,
  probe_sent,
  probe_answered,
  ev_probe_sent,
  ev_probe_answered,
  endpoint_answered,
  port_status_sent,
  port_status_accepted,
  port_status_stale,
  trimmed_received,
  ce_received,
  lost_inferred,
  lost_rto,
  lost_probe,
  spurious_loss,
  ev_condemned,
  ev_readmitted,
  ev_swapped,
  ev_floor_returned,
  ev_skipped,
  ev_skipped_marked,   // of them, those that a mark made pass their turn, and not a trimmed packet
  ev_swapped_skipped,  // of ev_swapped, those where every path of a plane was to pass its turn
  qp_errors,
  requests_flushed,
  wimm_stalled,     // packets, each once
  psn_window_full,  // packets that the congestion window would let go, each once
  // Drops. Nothing received is trusted.
  drop_short,
  drop_not_ipv6,
  drop_not_tunnel,
  drop_not_udp,
  drop_udp_port,
  drop_opcode,
  drop_length,
  drop_address,
  drop_unknown_qp,
  drop_wrong_peer,
  drop_unknown_peer,
  drop_no_timestamp,
  drop_bad_message,
  drop_ack_beyond_sent,
  drop_ack_stale,
  drop_bad_reason,
  drop_bad_endpoint_op,
  drop_unasked_answer,
  drop_qp_error,
  drop_control_overflow,
  drop_control_no_path,
  kCount
};

std::string_view to_string(Count count);

class Counters {
 public:
  void add(Count c, std::uint64_t n = 1) { values_[static_cast<std::size_t>(c)] += n; }
  std::uint64_t get(Count c) const { return values_[static_cast<std::size_t>(c)]; }
  void append(std::vector<TransportCounter>& out) const;

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Count::kCount)> values_{};
};

}  // namespace loomnet::mrc
