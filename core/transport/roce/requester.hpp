// Sending half of one RC queue pair: go-back-N over parts of messages. PSNs are counted in 64 bits
// from the queue pair's start; only the packets carry 24.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "clock/time.hpp"
#include "packet/rdma.hpp"
#include "transport/roce/options.hpp"
#include "transport/roce/ring.hpp"

namespace loomnet::roce {

// Unacknowledged PSNs a requester may have: half the space, so that old and new stay apart.
inline constexpr std::uint64_t kMaxOutstandingPsns = 1u << 23;

// Nearest 64-bit count to `near` whose low 24 bits, from `initial`, are `psn`; signed distance.
constexpr std::int64_t psn_distance(std::uint32_t psn, std::uint32_t initial, std::uint64_t near) {
  const std::uint32_t d = (psn - initial - static_cast<std::uint32_t>(near)) & kMask24;
  return d < (1u << 23) ? std::int64_t{d} : std::int64_t{d} - (1 << 24);
}

// This queue pair's share of a message.
struct Part {
  std::uint64_t message = 0;  // number of the message in its connection
  std::uint64_t first = 0;    // PSN count of its first packet
  std::uint64_t begin = 0;    // bytes of this queue pair's parts before it
  std::uint32_t packets = 0;
  std::uint32_t offset = 0;  // bytes into the message
  std::uint32_t length = 0;
};

struct Segment {
  const Part* part = nullptr;
  std::uint64_t sequence = 0;
  std::uint32_t offset = 0;  // bytes into the part
  std::uint32_t length = 0;
  bool first = false, last = false, ack_request = false, retransmission = false;
};

class Requester {
 public:
  void post(std::uint64_t message, std::uint32_t offset, std::uint32_t length, std::uint32_t mtu) {
    const std::uint32_t packets = length == 0 ? 1 : static_cast<std::uint32_t>((std::uint64_t{length} + mtu - 1) / mtu);
    parts_.push({message, posted_, posted_bytes_, packets, offset, length});
    posted_ += packets;
    posted_bytes_ += length;
  }

  bool outstanding() const { return acked_ < posted_; }
  bool in_flight() const { return acked_ < sent_; }
  std::uint64_t acked() const { return acked_; }
  std::uint64_t sent() const { return sent_; }
  // The same two in bytes of payload.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t acked_bytes(std::uint32_t mtu) const {
    if (parts_.size() == 0) return posted_bytes_;
    const Part& oldest = parts_.front();
    return oldest.begin + (acked_ - oldest.first) * mtu;
  }
  // Message that the oldest unacknowledged packet belongs to. Requires outstanding().
  std::uint64_t oldest_message() const { return parts_.front().message; }

  // Message that the next packet belongs to. Requires can_send().
  std::uint64_t next_message() const { return parts_[cursor_].message; }

  // Whether a packet may leave: one that fits into the window, or one beyond it that asks for an ACK which
  // nothing under way has asked for. An ACK covers what came before it, and the last packet that a window lets
  // go asks for one; but where the window has since been cut below packets that did not ask, no answer to them
  // would ever come. So a requester that has run out of credits may send one more request, and asks with it
  // (InfiniBand Architecture Vol. 1, 9.7.7.2).
  bool can_send(std::uint64_t window) const {
    if (next_ >= posted_) return false;
    return next_ - acked_ < window || asked_ <= acked_;
  }
  // The next packet in order; requires can_send().
  Segment send(const RoceOptions& options, std::uint64_t window) {
    const Part& part = parts_[cursor_];
    Segment s;
    s.part = &part;
    s.sequence = next_;
    const auto index = static_cast<std::uint32_t>(next_ - part.first);
    s.offset = index * options.payload_mtu;
    s.length = std::min(options.payload_mtu, part.length - s.offset);
    s.first = index == 0;
    s.last = index + 1 == part.packets;
    s.retransmission = next_ < sent_;
    ++next_;
    s.ack_request = s.last || next_ % options.ack_interval == 0 || next_ - acked_ >= window;
    if (s.ack_request) asked_ = next_;
    if (next_ > sent_) sent_bytes_ += s.length;
    sent_ = std::max(sent_, next_);
    if (s.last) ++cursor_;
    return s;
  }

  // Everything below `end` has arrived, end in [acked, sent]. Calls done(message) per part, in
  // order. True if that was news.
  template <typename Done>
  bool acknowledge(std::uint64_t end, Done&& done) {
    if (end <= acked_) return false;
    acked_ = end;
    std::size_t finished = 0;
    while (finished < parts_.size() && parts_[finished].first + parts_[finished].packets <= acked_) {
      ++finished;
    }
    cursor_ = cursor_ > finished ? cursor_ - finished : 0;
    next_ = std::max(next_, acked_);
    // Last, because a completion may lead to a post.
    for (; finished > 0; --finished) done(parts_.pop().message);
    return true;
  }

  void go_back() {
    next_ = asked_ = acked_;
    cursor_ = 0;
  }
  void clear() {
    parts_.clear();
    cursor_ = 0;
    acked_ = next_ = asked_ = sent_ = posted_;
    sent_bytes_ = posted_bytes_;
  }

  std::uint8_t retries = 0;       // timeouts since the last progress
  Picoseconds deadline = kNever;  // of the ACK timer

 private:
  std::uint64_t acked_ = 0;   // oldest unacknowledged
  std::uint64_t next_ = 0;    // to be sent next
  std::uint64_t asked_ = 0;   // one behind the newest under way that asks for an ACK; acked_ or less: none
  std::uint64_t sent_ = 0;    // one behind the newest ever sent
  std::uint64_t posted_ = 0;  // one behind the last posted
  std::uint64_t sent_bytes_ = 0, posted_bytes_ = 0;
  std::size_t cursor_ = 0;    // index of the part that holds next_
  Ring<Part> parts_;
};

}  // namespace loomnet::roce
