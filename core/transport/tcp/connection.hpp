// What the TCP transport keeps per connection. Only the transport's own files include it.
#pragma once

#include "transport/tcp/tcp_transport.hpp"

namespace loomnet::tcp {

// What a connection still owes its handshake, and what it waits for.
enum class Handshake : std::uint8_t {
  done,
  syn_due,
  syn_sent,
  listening,
  syn_ack_due,
  syn_ack_sent,
  ack_due,
};

struct TcpTransport::Connection {
  Connection(const TcpOptions& options, const CongestionMake& control, Counters& counters, std::uint64_t stream)
      : sender(options, control, counters, stream), receiver(options, counters, sender.accurate_ecn()) {}

  std::uint32_t index = 0;
  QpNumber local = 0;
  HostId source = 0, destination = 0;
  std::uint32_t flow = 0;
  Ipv6Address local_address{}, remote_address{};
  std::uint16_t local_port = 0, remote_port = 0;
  std::uint32_t send_start = 0, receive_start = 0;  // initial sequence numbers
  std::uint32_t hash = 0;  // of the five tuples: the host's choice of plane
  std::uint8_t planes = 0;
  std::uint8_t routed = 0xff;  // planes that the host's route leads over
  PlanePort port = kNoPort;
  bool queued = false;  // in its port's list
  bool told_ahead = false;  // the client waits for TransportSink::caught_up
  bool failed = false;
  bool reset_due = false;
  Handshake handshake = Handshake::done;
  Picoseconds greeted_at{};  // when the SYN or the SYN-ACK was sent
  Status reset_reason = Status::remote_operational;
  std::uint32_t reset_sequence = 0;
  Connection* next_queued = nullptr;
  std::array<std::uint8_t, kEthernetBytes + Ipv6Header::kSize> front{};  // lengths and class per packet
  Sender sender;
  Reassembly receiver;
  StreamReader reader;
};

}  // namespace loomnet::tcp
