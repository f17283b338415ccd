// Judging segments, keeping early ones, and Linux's rules of when to acknowledge.
#include "transport/tcp/reassembly.hpp"

#include <algorithm>

namespace loomnet::tcp {

void Reassembly::note_duplicate(std::uint64_t begin, std::uint64_t end) {
  ++count_.duplicates_dropped;
  duplicate_ = {begin, end};
  quick_acks_ = options_.quick_acks;  // tcp_enter_quickack_mode: the sender is repairing
  ack_now_ = true;
}

Reassembly::Verdict Reassembly::judge(const Arriving& a) {
  const auto next = static_cast<std::int64_t>(next_);
  const std::int64_t end = a.begin + a.length;
  if (end <= next) {
    note_duplicate(static_cast<std::uint64_t>(std::max<std::int64_t>(a.begin, 0)),
                   static_cast<std::uint64_t>(end > 0 ? end : 0));
    return Verdict::drop;
  }
  if (end > next + options_.receive_buffer) {  // RFC 9293 3.10.7.4: unacceptable, answered by an ACK
    ++count_.beyond_window_dropped;
    ack_now_ = true;
    return Verdict::drop;
  }
  // The state of marks changes: what was received before is acknowledged with the old one first.
  if (accurate_ecn_ && a.ce != ce_) {
    if (acked_ < next_ && !early_) {
      early_content_ = {};
      early_content_.end = next_;
      early_content_.ece = ce_;
      early_content_.ts_echo = ts_recent_;
      early_ = true;
      acked_ = next_;
      delayed_ = kNever;
    }
    ce_ = a.ce;
    ack_now_ = true;
  }
  if (!accurate_ecn_) {
    if (a.cwr) ce_ = false;
    if (a.ce) ce_ = true;
  }
  if (a.timestamps && a.begin <= static_cast<std::int64_t>(acked_)) ts_recent_ = a.ts_value;  // RFC 7323 4.3
  if (a.begin <= next) return Verdict::deliver;

  const auto begin = static_cast<std::uint64_t>(a.begin);
  for (const Range& r : ranges_) {
    if (begin >= r.begin && begin + a.length <= r.end) {
      note_duplicate(begin, begin + a.length);
      return Verdict::drop;
    }
  }
  if (charged_ + charge(a.length) > 2 * std::uint64_t{options_.receive_buffer}) {
    ++count_.reassembly_full_dropped;
    ack_now_ = true;
    return Verdict::drop;
  }
  return Verdict::keep;
}

void Reassembly::keep(const Arriving& a, PacketPtr packet) {
  ++count_.out_of_order_kept;
  const auto begin = static_cast<std::uint64_t>(a.begin), end = begin + a.length;
  const auto at =
      std::upper_bound(held_.begin(), held_.end(), begin, [](std::uint64_t b, const Held& h) { return b > h.begin; });
  held_.insert(at, Held{begin, a.length, a.header_end, std::move(packet)});
  charged_ += charge(a.length);
  // The range it makes, or extends, or joins.
  auto first = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                [](const Range& r, std::uint64_t b) { return r.end < b; });
  if (first == ranges_.end() || first->begin > end) {
    ranges_.insert(first, Range{begin, end, ++touches_});
    return;
  }
  first->begin = std::min(first->begin, begin);
  first->end = std::max(first->end, end);
  first->touched = ++touches_;
  auto last = first + 1;
  while (last != ranges_.end() && last->begin <= first->end) {
    first->end = std::max(first->end, last->end);
    ++last;
  }
  ranges_.erase(first + 1, last);
}

// Linux (__tcp_ack_snd_check, tcp_cleanup_rbuf): at once while bytes are missing, for more than one
// full segment, for the first packets of a connection, and where a segment with PSH has been read
// to its end; its exception for request-response traffic (pingpong mode) is left out. Else 40 ms
// later.
void Reassembly::settle(const Arriving& a, Picoseconds now) {
  std::size_t passed = 0;
  while (passed < ranges_.size() && ranges_[passed].end <= next_) ++passed;
  const bool filled = passed > 0;
  ranges_.erase(ranges_.begin(), ranges_.begin() + static_cast<std::ptrdiff_t>(passed));
  const std::uint32_t mss = options_.mtu - kHeaderBytes;
  // tcp_event_data_recv: after a silence the sender starts again with a window of few segments.
  if (arrived_ != kNever && now - arrived_ > options_.rto_min) quick_acks_ = options_.quick_acks;
  arrived_ = now;
  if (quick_acks_ > 0) {
    --quick_acks_;
    ack_now_ = true;
  }
  if (!ranges_.empty() || filled || a.push || next_ - acked_ > mss || options_.delayed_ack.count == 0) ack_now_ = true;
  if (ack_now_) {
    delayed_ = kNever;
  } else if (acked_ < next_ && delayed_ == kNever) {
    delayed_ = now + options_.delayed_ack;
  }
}

AckContent Reassembly::content(std::size_t blocks) {
  if (early_) {
    early_ = false;
    return early_content_;
  }
  AckContent c;
  c.end = next_;
  c.ece = ce_;
  c.ts_echo = ts_recent_;
  blocks = std::min(blocks, c.sack.size());
  if (duplicate_.end > duplicate_.begin && blocks > 0) {
    c.sack[c.sack_count++] = duplicate_;
    c.dsack = true;
    duplicate_ = {};
  }
  // RFC 2018 4: the block of the last segment first, then the others by how recent they are.
  std::uint64_t below = ~0ull;
  while (c.sack_count < blocks) {
    const Range* best = nullptr;
    for (const Range& r : ranges_) {
      if (r.touched < below && (!best || r.touched > best->touched)) best = &r;
    }
    if (!best) break;
    c.sack[c.sack_count++] = {best->begin, best->end};
    below = best->touched;
  }
  acked_ = next_;
  delayed_ = kNever;
  ack_now_ = false;
  return c;
}

}  // namespace loomnet::tcp
