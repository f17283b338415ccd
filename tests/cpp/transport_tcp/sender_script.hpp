// Drives one Sender by hand: segments go out at stated times, acknowledgements come in as the test
// writes them. Offsets are counted in full segments.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "transport/tcp/framing.hpp"
#include "transport/tcp/sender.hpp"

namespace loomnet::tcp {

using Numbers = std::vector<std::uint64_t>;  // of segments
constexpr Picoseconds kRtt = milliseconds(20);

struct SenderScript {
  static TcpOptions options(const std::string& control) {
    TcpOptions o;
    o.mtu = 1280;
    o.congestion_control = control;
    return o;
  }
  explicit SenderScript(TcpOptions o = options("reno"))
      : chosen(std::move(o)),
        sender(chosen,
               choose_congestion_control("congestion_control", chosen.congestion_control, chosen.congestion_options,
                                         kSignals),
               count, 1) {}

  std::uint64_t mss() const { return sender.window().mss; }
  // Posts one message that makes exactly `segments` full segments.
  void post(std::uint64_t segments) {
    WorkRequest w;
    w.length = static_cast<std::uint32_t>(segments * mss() - FrameHeader::kSize);
    sender.post(w, now);
  }
  // Sends what may go, `gap` apart; the segments' numbers.
  Numbers pump(Picoseconds gap = microseconds(10)) {
    Numbers out;
    while (sender.ready(now) == Sender::Ready::now) {
      const Transmission t = sender.send(now);
      out.push_back(t.begin / mss());
      now += gap;
    }
    return out;
  }
  struct Range {
    std::uint64_t begin, end;
  };
  // Everything before segment `end` has arrived, and the ranges of segments given.
  void ack(std::uint64_t end, const std::vector<Range>& sack = {}, bool ece = false, std::uint32_t echo = 0) {
    Acknowledgement a;
    a.end = end * mss();
    a.window = 1 << 20;
    a.ece = ece;
    a.timestamps = echo != 0;
    a.ts_echo = echo;
    for (const Range& r : sack) a.sack[a.sack_count++] = {r.begin * mss(), r.end * mss()};
    sender.on_ack(a, now);
  }
  double cwnd() const { return static_cast<double>(sender.window().cwnd) / static_cast<double>(mss()); }
  double in_flight() const { return static_cast<double>(sender.board().in_flight()) / static_cast<double>(mss()); }
  // One round trip that gives the sender an RTT of exactly `rtt`: one segment, alone.
  void measure(Picoseconds rtt) {
    post(1);
    EXPECT_EQ(pump({}).size(), 1u);
    now += rtt;
    ack(1);
    base = 1;
  }

  TcpOptions chosen;
  Counters count;
  Sender sender;
  Picoseconds now = milliseconds(1);
  std::uint64_t base = 0;  // segments acknowledged by measure()
};

}  // namespace loomnet::tcp
