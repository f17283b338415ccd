// Packets of rings at one egress, in order of departure, for tests of the symphony program: senders of
// random speed that obey the ring's rule, pause, rewind and leave.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clock/random.hpp"
#include "switch_symphony/step_frames.hpp"

namespace loomnet::test {

struct RingPacket {
  step_header step;
  Leaving leaving;
};

struct RingShape {
  std::uint16_t job = 7, ring = 0, nranks = 8;
  std::uint32_t first_step = 0;       // the step counter where the run begins
  std::uint32_t packets_of_step = 50;
  std::int64_t packet_ns = 2'000;     // between departures
  bool pauses = true, rewinds = true;
};

// Rank i sends its step s once rank i - 1 has sent step s - 1: what the ring makes sure of.
class RingPackets {
 public:
  RingPackets(const RingShape& shape, std::uint64_t seed)
      : shape_(shape), random_(seed, 0x72696e67, 0), sent_(shape.nranks), quiet_until_(shape.nranks) {
    for (std::uint16_t rank = 0; rank < shape.nranks; ++rank) weight_.push_back(1 + random_.below(8));
  }
  RingPacket next() {
    now_ += shape_.packet_ns + random_.below(static_cast<std::uint32_t>(shape_.packet_ns));
    if (shape_.pauses && random_.below(4000) == 0) {
      quiet_until_[random_.below(shape_.nranks)] = now_ + 131'072 * (1 + random_.below(6));
    }
    for (;;) {
      const auto rank = static_cast<std::uint16_t>(random_.below(shape_.nranks));
      if (random_.below(8) >= weight_[rank]) continue;
      if (quiet_until_[rank] > now_ || !may_send(rank)) {
        now_ += 100;
        continue;
      }
      return {packet_of(rank), {now_, random_.below(5), random_.below(40) == 0}};
    }
  }

 private:
  bool may_send(std::uint16_t rank) const {
    const std::uint64_t step = sent_[rank] / shape_.packets_of_step;
    const std::uint16_t before = static_cast<std::uint16_t>((rank + shape_.nranks - 1) % shape_.nranks);
    return step == 0 || sent_[before] / shape_.packets_of_step >= step;
  }
  step_header packet_of(std::uint16_t rank) {
    std::uint8_t flags = 0;
    std::uint64_t at = sent_[rank];
    if (shape_.rewinds && at > 20 && random_.below(200) == 0) {
      at -= 1 + random_.below(20);
      flags = STEP_FLAG_AGAIN;
    } else {
      ++sent_[rank];
    }
    const std::uint64_t of = at % shape_.packets_of_step;
    if (of + 1 == shape_.packets_of_step) flags |= STEP_FLAG_LAST;
    const std::uint64_t steps = shape_.first_step + at / shape_.packets_of_step;
    const auto prog = static_cast<std::uint32_t>(steps << 16 | of * 65536 / shape_.packets_of_step);
    return {flags, 5, shape_.job, shape_.ring, rank, shape_.nranks, prog};
  }

  RingShape shape_;
  RandomStream random_;
  std::int64_t now_ = 0;
  std::vector<std::uint64_t> sent_;  // packets, of each rank
  std::vector<std::int64_t> quiet_until_;
  std::vector<std::uint32_t> weight_;
};

}  // namespace loomnet::test
