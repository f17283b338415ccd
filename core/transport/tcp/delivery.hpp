// What one acknowledgement delivered, gathered on its way through the sender. Only the sender's own
// files include it.
#pragma once

#include "transport/tcp/sender.hpp"

namespace loomnet::tcp {

struct Sender::Delivery {
  std::uint64_t acked = 0, delivered = 0, delivered_framing = 0;
  std::uint64_t prior_una = 0, prior_in_flight = 0, prior_framing_in_flight = 0;
  Picoseconds first_rtt = kNever, last_rtt = kNever;  // of segments sent once
  bool newly_sacked = false, dsack = false, tlp_dsack = false;
  std::uint32_t ts_echo = 0;
  bool timestamps = false;
  // The segment delivered last, for the rate.
  bool rated = false, app_limited = false;
  std::uint64_t prior_delivered = 0, prior_delivered_framing = 0, prior_lost = 0, sent_in_flight = 0;
  Picoseconds sent{}, rate_start{}, prior_delivered_at{};
};

}  // namespace loomnet::tcp
