// What passes one port of one node, as pcapng ("PCAP Next Generation (pcapng) Capture File
// Format", draft-ietf-opsawg-pcapng): one section, one interface, timestamps of emulated time. They
// are whole nanoseconds: Wireshark 4.0 overflows when it converts picoseconds, from 18 ms on.
//
// A packet without payload bytes (lengths only) is snapped behind its headers and keeps its
// original length; invariant CRC and padding, which no model fills, are zeros. MAC addresses that no
// model fills are those of the two ports of the link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "link/half_link.hpp"
#include "packet/ethernet.hpp"
#include "packet/packet.hpp"

namespace loomnet {

enum class Direction : std::uint8_t { inbound = 1, outbound = 2 };  // values of epb_flags

// A port's address in captures: 02, 24 bits of the node's number, 16 of the port's.
constexpr MacAddress port_address(std::uint32_t node, std::uint16_t port) {
  return local_mac(std::uint64_t{node} << 16 | port);
}

class PortCapture {
 public:
  static constexpr std::size_t kMostPending = 256u << 20;  // bytes; more are dropped and counted
  static constexpr std::size_t kFull = 8u << 20;       // bytes; it is time to take them
  static constexpr std::size_t kMostHeld = 64u << 20;  // the same while the zero of time is not known

  // `egress` is the half-link that leaves the port, `far` the address of the port at its other end;
  // `interface` and `description` go into the file.
  PortCapture(std::uint32_t node, std::uint16_t port, const HalfLink& egress, const MacAddress& far,
              std::string_view interface, std::string_view description);

  // What the file counts its times from; the engine's start, unless it is set before the first take().
  // kNever: it will be set later. Until then take() gives no packets, unless more than kMostHeld wait;
  // those stand at the file's earliest time, with a comment. A packet from before the zero has a negative
  // time: the interface has an offset of -10^6 s.
  void set_zero(Picoseconds zero) { zero_ = zero; }

  std::uint32_t node() const { return node_; }
  std::uint16_t port() const { return port_; }
  void add(Direction direction, const Packet& packet, Picoseconds at, std::string_view comment = {},
           bool crc_error = false);
  // Puts a comment on the packet of this uid that came in by the port, if it is among the last 4,096
  // that wait to be taken: a switch in the kernel answers after others have come in.
  void annotate(const Packet& packet, std::string_view comment);

  std::size_t pending_bytes() const { return blocks_.size(); }
  bool full() const { return blocks_.size() > (zero_ == kNever ? kMostHeld : kFull); }
  std::uint64_t packets() const { return packets_; }
  std::uint64_t dropped() const { return dropped_; }

  // The file so far unwritten, in order of time: all that lies before `now` minus `slack` and no
  // later look at the link can precede.
  std::string take(Picoseconds now, Picoseconds slack = {});
  // The rest, and the interface's statistics. They say when the capture started: the engine's start in the
  // file's own time, from which a reader finds the edges of what a switch counts in its own clock.
  std::string finish(Picoseconds now);

 private:
  struct Record {
    Picoseconds at;
    std::size_t begin, length;
    std::uint64_t uid;
    Direction direction;
  };
  std::string header();
  std::string until(Picoseconds limit);
  // Appends the record's block, with its time counted from zero_.
  void write(std::string& out, const Record& record) const;
  // Writes addresses into the frame at `frame` where it has none.
  void address(std::size_t frame, Direction direction);

  std::uint32_t node_;
  std::uint16_t port_;
  const HalfLink& egress_;
  MacAddress near_, far_;
  Picoseconds zero_{};
  Picoseconds offset_{};         // of the interface, added to all times
  std::string interface_, description_;
  bool begun_ = false;           // section and interface have been taken
  std::string blocks_;           // encoded packets …
  std::vector<Record> records_;  // … in order of add()
  std::uint64_t packets_ = 0, dropped_ = 0;
};

}  // namespace loomnet
