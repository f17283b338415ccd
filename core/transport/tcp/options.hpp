// What a TCP host can be told, with the values Linux ships. Choices of this model: connections exist
// from the start, and their handshake only measures a round trip (a lost one is not repeated; no
// teardown); timestamps tick in microseconds (Linux has them since 6.7); buffers hold payload
// without a socket buffer's overhead, and the window offered is the buffer from the start, where
// Linux tunes it with the flow; paced segments go out in bursts of the size that Linux would give
// a buffer, others one by one, where Linux may hold an unpaced one back to fill a larger buffer.
#pragma once

#include <cstdint>
#include <string>

#include "clock/time.hpp"
#include "transport/congestion.hpp"

namespace loomnet::tcp {

struct TcpOptions {
  std::uint32_t mtu = 1500;                  // bytes of IPv6 packet; MSS = mtu - 72
  std::string congestion_control = "cubic";  // by registered name; Linux's default
  OptionValues congestion_options;           // of that control
  std::uint32_t initial_window = 10;         // segments (RFC 6928)
  std::uint32_t send_buffer = 4'194'304;     // bytes unacknowledged at most: tcp_wmem's maximum
  std::uint32_t receive_buffer = 6'291'456;  // bytes of window offered: tcp_rmem's maximum
  // RTO = SRTT + max(4 RTTVAR, rto_min) as Linux has it; RFC 6298's own floor is 1 s on the sum.
  Picoseconds rto_min = milliseconds(200);
  Picoseconds rto_max = seconds(120);
  Picoseconds rto_initial = seconds(1);        // RFC 6298 2.1
  std::uint32_t retries = 15;                  // timeouts without progress survived: tcp_retries2
  Picoseconds delayed_ack = milliseconds(40);  // TCP_DELACK_MIN
  // Packets acknowledged at once at the start, after a duplicate and after a silence longer than
  // rto_min: TCP_MAX_QUICKACKS.
  std::uint32_t quick_acks = 16;
  bool handshake = true;  // SYN, SYN-ACK, ACK at connect(): each end measures the round trip
  bool ecn = false;                   // RFC 3168 agreed upon; dctcp always has ECN
  bool slow_start_after_idle = true;  // RFC 5681 4.1, as Linux: halves per RTO of silence
  std::uint64_t seed = 0;             // of the host's ECMP hash and of BBR's first phase

  static const OptionTable<TcpOptions>& table();
  // Options by name, those of the congestion control among them. Throws std::invalid_argument.
  static TcpOptions of(const OptionValues& values);
  // Throws std::invalid_argument naming the option that is out of range.
  void check() const;
};

// What the sender tells a congestion control.
inline constexpr Signals kSignals = signal::rtt | signal::delivery_rate | signal::marks | signal::recovery;

inline constexpr std::uint32_t kHeaderBytes = 40 + 20 + 12;  // IPv6, TCP, timestamps
inline constexpr std::uint32_t kEthernetBytes = 14;

}  // namespace loomnet::tcp
