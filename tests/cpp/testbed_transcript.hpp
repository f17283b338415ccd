// What happened on the test bed, the last few thousand things: kept compact, made readable only
// when a test fails.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "packet/packet.hpp"
#include "transport/transport.hpp"

namespace loomnet::testbed {

// One thing that happened.
struct Line {
  enum class What : std::uint8_t {
    sent,
    received,
    lost,
    duplicated,
    corrupted,
    delayed,
    queue_full,
    trimmed,
    link_down,
    filtered,
    no_route,
    posted,
    completed,
    arrived,
    event,
    deadline,
    port_up,
    port_down,
    note
  };
  Picoseconds at{};
  What what = What::note;
  std::uint8_t host = 0, port = 0;
  QueueClass queue = 0;
  std::uint16_t header_length = 0;
  std::uint32_t a = 0, b = 0;  // uid and wire length, or qp and detail
  std::array<std::uint8_t, kMaxHeaderBytes> header;
};

inline const char* to_string(Line::What what) {
  static constexpr const char* kNames[] = {"sent",     "received",   "lost",      "duplicated", "corrupted",
                                           "delayed",  "queue_full", "trimmed",   "link_down",  "filtered",
                                           "no_route", "posted",     "completed", "arrived",    "event",
                                           "deadline", "port_up",    "port_down", "note"};
  return kNames[static_cast<std::size_t>(what)];
}

class Transcript {
 public:
  using Describe = std::function<std::string(std::span<const std::uint8_t> header)>;

  void record(Picoseconds now, Line::What what, HostId host, PlanePort port, const Packet& p) {
    Line& l = next();
    l.at = now, l.what = what, l.host = static_cast<std::uint8_t>(host), l.port = port, l.queue = p.queue;
    l.a = static_cast<std::uint32_t>(p.uid), l.b = p.wire_length;
    l.header_length = p.header_length;
    std::memcpy(l.header.data(), p.header.data(), p.header_length);
  }
  void note(Picoseconds now, Line::What what, HostId host, PlanePort port, std::uint32_t a, std::uint32_t b) {
    Line& l = next();
    l.at = now, l.what = what, l.host = static_cast<std::uint8_t>(host), l.port = port;
    l.a = a, l.b = b, l.header_length = 0;
  }
  // The last `last` lines, oldest first, with what `describe`, if any, says of a packet's headers.
  std::string text(std::size_t last, const Describe& describe) const {
    std::string out;
    const std::size_t n = std::min(last, lines_.size());
    for (std::size_t i = written_ - n; i < written_; ++i) {
      const Line& l = lines_[i % kLines];
      char text[160];
      std::snprintf(text, sizeof text, "%14.6f us  h%u.p%u %-10s %10u %10u", l.at.microseconds(), l.host, l.port,
                    to_string(l.what), l.a, l.b);
      out += text;
      if (l.header_length > 0 && describe) out += "  " + describe({l.header.data(), l.header_length});
      out += '\n';
    }
    return out;
  }

 private:
  static constexpr std::size_t kLines = 4096;

  Line& next() {
    if (lines_.size() < kLines) lines_.resize(lines_.size() + 1);
    return lines_[written_++ % kLines];
  }

  std::vector<Line> lines_;
  std::size_t written_ = 0;
};

}  // namespace loomnet::testbed
