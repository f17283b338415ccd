// Posting and sending: what goes out next, and when.
#include "transport/tcp/sender.hpp"

#include <algorithm>
#include <utility>

#include "transport/tcp/framing.hpp"

namespace loomnet::tcp {

Sender::Sender(const TcpOptions& options, const CongestionMake& control, Counters& counters, std::uint64_t stream)
    : options_(options), count_(counters), rtt_(options.rto_initial, options.rto_min, options.rto_max) {
  FlowContext flow;
  flow.mss = options.mtu - kHeaderBytes;
  flow.header = kHeaderBytes;
  flow.initial_window = std::uint64_t{options.initial_window} * flow.mss;
  flow.seed = options.seed;
  flow.stream = stream;
  window_ = fresh_limits(flow);
  control_ = control(window_, flow);
  window_end_ = options.receive_buffer;  // both ends have the same options
}

Sender::~Sender() = default;

void Sender::established(Picoseconds rtt, Picoseconds now) {
  if (nxt_ > 0 || rtt.count <= 0) return;
  rtt_.sample(rtt, rtt, now);
  control_->on_established(rtt, now);
}

void Sender::post(const WorkRequest& request, Picoseconds now) {
  Message m;
  m.begin = posted_;
  m.end = posted_ + FrameHeader::kSize + request.length;
  m.number = first_message_ + messages_.size();
  m.request = request;
  if (una_ == posted_) progress_at_ = now;
  posted_ = m.end;
  messages_.push(m);
}

bool Sender::take_completed(Message& out, bool any) {
  if (messages_.empty() || (!any && messages_.front().end > una_)) return false;
  out = messages_.pop();
  ++first_message_;
  sending_ = std::max(sending_, first_message_);
  return true;
}

std::uint32_t Sender::next_length() const {
  const Message& m = messages_[sending_ - first_message_];
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(window_.mss, m.end - nxt_));
}

Sender::Ready Sender::ready(Picoseconds now) {
  bool may = false;
  if (board_.lost() > 0) {
    const Segment& s = board_[board_.next_lost()];
    may = probe_due_ || window_allows(s.length);
    if (!may) limited_end_ = nxt_;
  } else if (nxt_ < posted_) {
    const std::uint32_t length = next_length();
    if (probe_due_) {
      may = true;
    } else if (!window_allows(length)) {
      limited_end_ = nxt_;
    } else {
      may = peer_allows(nxt_ + length);
    }
  } else {
    may = probe_due_ && !board_.empty();
    // Nothing to send: rates measured until what is in flight is delivered say little.
    if (board_.in_flight() < window_.cwnd) {
      app_limited_until_ = std::max<std::uint64_t>(delivered_ + board_.in_flight(), 1);
    }
  }
  if (!may) {
    burst_ = 0;
    if (board_.empty() && nxt_ < posted_ && timer_ == kNever) arm(now);  // closed window: persist
    return Ready::nothing;
  }
  if (window_.pacing_rate > 0 && burst_ == 0 && now < paced_until_) return Ready::paced;
  return Ready::now;
}

// What leaves back to back between two pauses of the pacing, as Linux sizes its buffers for
// segmentation offload (tcp_tso_autosize): a 1024th of a second, two segments at least, but one
// below BBR's 1.2 Mb/s.
std::uint64_t Sender::paced_burst() const {
  if (control_->traits.smooth) return window_.mss;
  const std::uint64_t least = window_.pacing_rate < 1'200'000 ? 1 : 2;
  const std::uint64_t bytes =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(window_.pacing_rate / 8 / 1024), 64 << 10);
  return std::max(bytes / window_.mss, least) * window_.mss;
}

void Sender::restart_after_idle(Picoseconds now) {
  control_->on_restart(now);  // the first data too: a connection may have waited long for it
  if (last_sent_.count == 0) return;
  const Picoseconds rto = rtt_.rto();
  Picoseconds idle = now - last_sent_;
  if (!options_.slow_start_after_idle || owns_window() || idle <= rto) return;
  ++count_.idle_restarts;
  const std::uint64_t restart =
      std::min<std::uint64_t>(window_.cwnd, std::uint64_t{options_.initial_window} * window_.mss);
  if (window_.ssthresh != kNoLimit) {
    window_.ssthresh = std::max(window_.ssthresh, window_.cwnd / 4 * 3);
  }
  for (idle -= rto; idle.count > 0 && window_.cwnd > restart; idle -= rto) window_.cwnd /= 2;
  window_.cwnd = std::max(window_.cwnd, restart);
}

void Sender::stamp(Segment& s, std::uint64_t in_flight, Picoseconds now) {
  if (board_.empty()) rate_start_ = delivered_at_ = now;
  s.in_flight = static_cast<std::uint32_t>(in_flight);  // a buffer holds less than 2^32 bytes
  s.lost = lost_total_;
  s.sent = now;
  s.rate_start = rate_start_;
  s.delivered_at = delivered_at_;
  s.delivered = delivered_;
  s.delivered_framing = framing_.delivered;
  s.app_limited = app_limited_until_ > 0;
}

Transmission Sender::describe(const Segment& s, bool retransmission) {
  Transmission t;
  t.message = &messages_[s.message - first_message_];
  t.begin = s.begin;
  t.length = s.length;
  t.retransmission = retransmission;
  t.push = s.end() == t.message->end;
  return t;
}

// Requires ready() == Ready::now.
Transmission Sender::send(Picoseconds now) {
  Transmission out;
  const bool probe = probe_due_;
  probe_due_ = false;
  const bool fresh = board_.lost() == 0 && nxt_ < posted_;
  if (fresh) {
    // A tail loss probe sends new data only where the peer takes it (RFC 8985 7.3).
    const std::uint32_t length = next_length();
    if (board_.empty()) restart_after_idle(now);
    Segment s;
    s.begin = nxt_;
    s.length = length;
    s.message = sending_;
    if (const Message& m = messages_[sending_ - first_message_]; nxt_ == m.begin) {
      s.framing = std::min<std::uint32_t>(FrameHeader::kSize, length);
    }
    stamp(s, board_.in_flight() + length, now);
    nxt_ += length;
    if (nxt_ == messages_[sending_ - first_message_].end) ++sending_;
    board_.push(s);
    out = describe(s, false);
    out.cwr = std::exchange(cwr_due_, false);
    if (persist_due_) ++count_.window_probes;
    if (probe && !persist_due_) tlp_end_ = nxt_, tlp_retransmission_ = false;
  } else {
    SegmentNumber n = board_.next_lost();
    if (n == Scoreboard::kNone) {  // a probe without new data repeats the last segment
      n = board_.end() - 1;
      tlp_end_ = nxt_;
      tlp_retransmission_ = true;
    }
    if (retransmit_stamp_ == 0) retransmit_stamp_ = timestamp(now);
    ++undo_retransmissions_;
    Segment& s = board_[n];
    if (s.state == Segment::State::sacked) {
      out = describe(s, true);
    } else {
      board_.resent(n, now);
      stamp(s, board_.in_flight(), now);
      out = describe(s, true);
    }
    if (n == board_.first() || rto_at_ == kNever) rto_at_ = now + rtt_.rto(backoff_);
    ++count_.retransmitted;
    count_.retransmitted_bytes += out.length;
    retransmitted_ += out.length;
    framing_.retransmitted += s.framing;
  }
  persist_due_ = false;
  if (state_ == State::cwr || state_ == State::recovery) prr_.sent(out.length);
  count_sent(window_, *control_, out.length, now);
  if (window_.pacing_rate > 0) {
    if (burst_ == 0) burst_ = paced_burst();
    burst_ -= std::min<std::uint64_t>(burst_, out.length);
    const auto bits = static_cast<unsigned __int128>(out.length) * 8u * 1'000'000'000'000u;
    paced_until_ =
        std::max(paced_until_, now) +
        Picoseconds{static_cast<std::int64_t>(bits / static_cast<std::uint64_t>(std::max(window_.pacing_rate, 1.0)))};
  }
  last_sent_ = now;
  if (rto_at_ == kNever) rto_at_ = now + rtt_.rto(backoff_);
  arm(now);
  return out;
}

}  // namespace loomnet::tcp
