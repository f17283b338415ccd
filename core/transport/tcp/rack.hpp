// RACK: loss by time (RFC 8985 6). Segments sent long enough before one that has been delivered are
// lost; how long depends on the reordering seen.
#pragma once

#include <algorithm>

#include "transport/tcp/rtt.hpp"
#include "transport/tcp/scoreboard.hpp"

namespace loomnet::tcp {

class Rack {
 public:
  static constexpr std::uint32_t kDupThresh = 3;
  static constexpr std::uint32_t kPersist = 16;  // recoveries a widened window lasts

  // Step 2 and 3: `segment` has just been acknowledged or SACKed. `echoed_before`: the ACK echoes a
  // timestamp older than this transmission, so an earlier one was delivered.
  void delivered(const Segment& s, Picoseconds now, const RttEstimator& rtt, bool echoed_before) {
    if (s.retransmissions == 0) {
      if (s.end() < fack_) reordering_seen_ = true;
      fack_ = std::max(fack_, s.end());
    } else if (echoed_before || (rtt.min() != kNever && now - s.sent < rtt.min())) {
      return;  // ambiguous: the original may have been delivered
    }
    if (sent_after(s.sent, s.end(), sent_, end_)) {
      sent_ = s.sent;
      end_ = s.end();
      rtt_ = now - s.sent;
    }
  }
  // A DSACK block came in; at most once per round trip it widens the window (step 4).
  void dsack(std::uint64_t acked_end, std::uint64_t sent_end) {
    if (acked_end < dsack_round_) return;
    dsack_round_ = sent_end;
    multiplier_ = std::min<std::uint32_t>(multiplier_ + 1, 0xff);
    persist_ = kPersist;
  }
  void recovered() {
    if (persist_ > 0 && --persist_ == 0) multiplier_ = 1;
  }
  // Step 4: the reordering window.
  Picoseconds window(const Scoreboard& board, const RttEstimator& rtt, bool in_recovery) const {
    if (!reordering_seen_ && (in_recovery || board.sacked_packets() >= kDupThresh)) return {};
    if (rtt.min() == kNever) return {};
    return std::min(rtt.min() / 4 * multiplier_, rtt.srtt());
  }
  // Step 5: marks what is lost by `now`, calling lost(number) for each. Returns when the next look
  // is due, kNever if none.
  template <typename Lost>
  Picoseconds detect(Scoreboard& board, const RttEstimator& rtt, bool in_recovery, Picoseconds now, Lost&& lost) {
    if (sent_ == kNone) return kNever;
    const Picoseconds patience = rtt_ + window(board, rtt, in_recovery);
    Picoseconds due = kNever;
    for (SegmentNumber n = board.oldest(); n != Scoreboard::kNone;) {
      const Segment& s = board[n];
      if (!sent_after(sent_, end_, s.sent, s.end())) break;
      const SegmentNumber next = board.next_sent(n);
      const Picoseconds expires = s.sent + patience;
      if (expires <= now) {
        board.mark_lost(n);
        lost(n);
      } else {
        due = due == kNever ? expires : std::max(due, expires);
      }
      n = next;
    }
    return due;
  }
  // Whether a segment sent at `sent` may still arrive, by the time alone (used at a timeout).
  bool recent(Picoseconds sent, const Scoreboard& board, const RttEstimator& rtt, Picoseconds now) const {
    return sent_ != kNone && now < sent + rtt_ + window(board, rtt, true);
  }
  bool reordering_seen() const { return reordering_seen_; }
  std::uint32_t multiplier() const { return multiplier_; }

 private:
  static constexpr Picoseconds kNone{-1};
  static bool sent_after(Picoseconds a, std::uint64_t a_end, Picoseconds b, std::uint64_t b_end) {
    return a > b || (a == b && a_end > b_end);
  }

  Picoseconds sent_ = kNone, rtt_{};
  std::uint64_t end_ = 0, fack_ = 0, dsack_round_ = 0;
  std::uint32_t multiplier_ = 1, persist_ = 0;
  bool reordering_seen_ = false;
};

}  // namespace loomnet::tcp
