// Names of MRC's counters, in the order of the enumeration.
#include "transport/mrc/counters.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::string_view kNames[] = {
    "data_sent",
    "data_retransmitted",
    "data_received",
    "data_duplicate",
    "bytes_placed",
    "messages_posted",
    "messages_completed",
    "immediates_delivered",
    "sack_sent",
    "sack_received",
    "nack_sent",
    "nack_received",
    "nak_sent",
    "nak_received",
    "probe_sent",
    "probe_answered",
    "ev_probe_sent",
    "ev_probe_answered",
    "endpoint_answered",
    "port_status_sent",
    "port_status_accepted",
    "port_status_stale",
    "trimmed_received",
    "ce_received",
    "lost_inferred",
    "lost_rto",
    "lost_probe",
    "spurious_loss",
    "ev_condemned",
    "ev_readmitted",
    "ev_swapped",
    "ev_floor_returned",
    "ev_skipped",
    "ev_skipped_marked",
    "ev_swapped_skipped",
    "qp_errors",
    "requests_flushed",
    "wimm_stalled",
    "psn_window_full",
    "drop_short",
    "drop_not_ipv6",
    "drop_not_tunnel",
    "drop_not_udp",
    "drop_udp_port",
    "drop_opcode",
    "drop_length",
    "drop_address",
    "drop_unknown_qp",
    "drop_wrong_peer",
    "drop_unknown_peer",
    "drop_no_timestamp",
    "drop_bad_message",
    "drop_ack_beyond_sent",
    "drop_ack_stale",
    "drop_bad_reason",
    "drop_bad_endpoint_op",
    "drop_unasked_answer",
    "drop_qp_error",
    "drop_control_overflow",
    "drop_control_no_path",
};
static_assert(std::size(kNames) == static_cast<std::size_t>(Count::kCount));

}  // namespace

std::string_view to_string(Count count) { return kNames[static_cast<std::size_t>(count)]; }

void Counters::append(std::vector<TransportCounter>& out) const {
  for (std::size_t i = 0; i < values_.size(); ++i) out.push_back({kNames[i], values_[i]});
}

}  // namespace loomnet::mrc
