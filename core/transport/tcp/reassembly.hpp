// Receiving half of a connection: puts the byte stream back in order and decides when and what to
// acknowledge: delayed ACKs as Linux sends them, SACK and DSACK blocks (RFC 2018, RFC 2883), ECN
// echo (RFC 3168, RFC 8257). Packets that came early are kept until the hole before them is filled.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "packet/packet.hpp"
#include "packet/tcp.hpp"
#include "transport/tcp/counters.hpp"
#include "transport/tcp/options.hpp"
#include "transport/tcp/sender.hpp"

namespace loomnet::tcp {

// A received segment, its number taken back to a stream offset. May begin below what was delivered.
struct Arriving {
  std::int64_t begin = 0;
  std::uint32_t length = 0;
  std::uint16_t header_end = 0;  // of the packet: its first stream byte
  bool push = false, ce = false, cwr = false, timestamps = false;
  std::uint32_t ts_value = 0;
};

// What an acknowledgement says besides its number.
struct AckContent {
  std::uint64_t end = 0;
  bool ece = false;
  std::uint32_t ts_echo = 0;
  std::array<SackRange, TcpOptionFields::kMaxSackBlocks> sack{};
  std::uint8_t sack_count = 0;
  bool dsack = false;
};

class Reassembly {
 public:
  Reassembly(const TcpOptions& options, Counters& counters, bool accurate_ecn)
      : options_(options), count_(counters), accurate_ecn_(accurate_ecn), quick_acks_(options.quick_acks) {}

  // Takes a segment with data. In-order bytes are handed to deliver(packet, skip, length): `length`
  // bytes of the stream from byte `skip` behind the packet's headers; false stops for good. Sets
  // what is to be acknowledged.
  template <typename Deliver>
  bool take(const Arriving& a, PacketPtr packet, Picoseconds now, Deliver&& deliver) {
    switch (judge(a)) {
      case Verdict::drop:
        return true;
      case Verdict::keep:
        keep(a, std::move(packet));
        break;
      case Verdict::deliver: {
        const auto skip = static_cast<std::uint32_t>(static_cast<std::int64_t>(next_) - a.begin);
        const std::uint32_t fresh = a.length - skip;
        next_ += fresh;
        if (!deliver(*packet, a.header_end, skip, fresh)) return false;
        packet.reset();
        while (!held_.empty() && held_.back().begin <= next_) {
          Held h = std::move(held_.back());
          held_.pop_back();
          charged_ -= charge(h.length);
          if (h.begin + h.length <= next_) continue;
          const auto over = static_cast<std::uint32_t>(next_ - h.begin);
          next_ += h.length - over;
          if (!deliver(*h.packet, h.header_end, over, h.length - over)) return false;
        }
        break;
      }
    }
    settle(a, now);
    return true;
  }

  std::uint64_t next() const { return next_; }
  bool ack_due() const { return ack_now_ || early_; }
  // When a delayed ACK falls due; kNever if none waits.
  Picoseconds deadline() const { return delayed_; }
  void on_deadline(Picoseconds now) {
    if (now < delayed_) return;
    delayed_ = kNever;
    ack_now_ = true;
    ++count_.delayed_acks;
  }
  void demand_ack() { ack_now_ = true; }
  // Something was received that has not been acknowledged: a data segment may carry it.
  // The ACK to send now, with at most `blocks` SACK blocks. A data segment carries it where all
  // fits.
  AckContent content(std::size_t blocks);
  std::size_t blocks_wanted() const { return ranges_.size() + (duplicate_.end > duplicate_.begin ? 1 : 0); }
  bool early() const { return early_; }
  std::size_t held() const { return held_.size(); }
  void release() {
    held_.clear();
    ranges_.clear();
    charged_ = 0;
  }

 private:
  enum class Verdict : std::uint8_t { drop, keep, deliver };
  struct Held {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
    std::uint16_t header_end = 0;
    PacketPtr packet;
  };
  struct Range {
    std::uint64_t begin = 0, end = 0, touched = 0;
  };
  static constexpr std::uint64_t charge(std::uint32_t length) { return length + 256u; }

  Verdict judge(const Arriving& a);
  void keep(const Arriving& a, PacketPtr packet);
  void settle(const Arriving& a, Picoseconds now);
  void note_duplicate(std::uint64_t begin, std::uint64_t end);

  const TcpOptions& options_;
  Counters& count_;
  const bool accurate_ecn_;
  std::uint64_t next_ = 0;
  std::vector<Held> held_;     // descending by begin: the next one wanted is the last
  std::vector<Range> ranges_;  // ascending, apart from each other: what is held
  std::uint64_t charged_ = 0, touches_ = 0;
  SackRange duplicate_;  // to be reported once (RFC 2883)
  bool ack_now_ = false;
  bool early_ = false;  // an ACK owed for what came before CE changed (RFC 8257 3.2)
  AckContent early_content_;
  bool ce_ = false;  // RFC 3168: until CWR; accurate: of the last segment
  std::uint32_t ts_recent_ = 0;
  std::uint64_t acked_ = 0;  // next_ when the last ACK was sent
  std::uint32_t quick_acks_;
  Picoseconds arrived_ = kNever;  // the last segment with data that was taken
  Picoseconds delayed_ = kNever;
};

}  // namespace loomnet::tcp
