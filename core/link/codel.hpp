// CoDel's control law (RFC 8289, section 5) over one queue: packets are dropped, or marked where they
// are ECN-capable, while none has waited for less than `target` during an `interval`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "clock/time.hpp"
#include "packet/packet.hpp"

namespace loomnet {

struct CodelSettings {
  Picoseconds target = milliseconds(5);
  Picoseconds interval = milliseconds(100);
  bool ecn = true;  // mark ECN-capable packets instead of dropping them
};

class Codel {
 public:
  // The packet to send at `now`; null where the queue is empty. `queue` has pop() → packet or null,
  // bytes() that still wait, drop(packet, now), mark(packet). Packet::arrival is when a packet came.
  template <class Queue>
  PacketPtr dequeue(Queue& queue, const CodelSettings& settings, Picoseconds now) {
    Head head = next(queue, settings, now);
    if (!head.drop) {
      dropping_ = false;
      return std::move(head.packet);
    }
    if (!dropping_) {
      begin(settings, now);
      if (settings.ecn && head.packet->ect) {
        queue.mark(*head.packet);
        return std::move(head.packet);
      }
      queue.drop(std::move(head.packet), now);
      return next(queue, settings, now).packet;
    }
    while (dropping_ && now >= drop_next_) {
      ++count_;
      if (settings.ecn && head.packet->ect) {
        drop_next_ = later(drop_next_, settings);
        queue.mark(*head.packet);
        break;
      }
      queue.drop(std::move(head.packet), now);
      head = next(queue, settings, now);
      dropping_ = head.drop;
      if (dropping_) drop_next_ = later(drop_next_, settings);
    }
    return std::move(head.packet);
  }

 private:
  struct Head {
    PacketPtr packet;
    bool drop = false;  // packets have waited for too long for a whole interval
  };

  template <class Queue>
  Head next(Queue& queue, const CodelSettings& settings, Picoseconds now) {
    Head head{queue.pop()};
    if (!head.packet) {
      first_above_ = {};
      return head;
    }
    largest_ = std::max(largest_, head.packet->wire_length);
    if (now - head.packet->arrival < settings.target || queue.bytes() <= largest_) {
      first_above_ = {};
    } else if (first_above_.count == 0) {
      first_above_ = now + settings.interval;
    } else {
      head.drop = now >= first_above_;
    }
    return head;
  }
  // Enters the dropping state, at the rate of the last one where that was not long ago.
  void begin(const CodelSettings& settings, Picoseconds now) {
    const std::uint32_t delta = count_ - last_count_;
    const bool recent = delta > 1 && now - drop_next_ < settings.interval * 16;
    dropping_ = true;
    count_ = recent ? delta : 1;
    last_count_ = count_;
    drop_next_ = later(now, settings);
  }
  Picoseconds later(Picoseconds from, const CodelSettings& settings) const {
    return from + settings.interval.scaled(1 / std::sqrt(static_cast<double>(count_)));
  }

  Picoseconds first_above_{};  // when the sojourn will have been above target for an interval; 0: no
  Picoseconds drop_next_{};
  std::uint32_t count_ = 0, last_count_ = 0;  // drops since dropping began, this time and last time
  std::uint32_t largest_ = 0;  // packet seen
  bool dropping_ = false;
};

}  // namespace loomnet
