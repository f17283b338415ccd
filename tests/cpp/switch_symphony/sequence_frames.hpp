// Frames without a step header: TCP and RoCE by their sequence numbers, UDP by its source port, the rules
// that say whose they are, and a frame's way through tunnels.
#pragma once

#include <utility>
#include <vector>

#include "clock/random.hpp"
#include "switch/symphony/symphony_batch.hpp"
#include "switch_symphony/step_frames.hpp"

namespace loomnet::test {

// A transport's bytes behind plain IPv6, a uSID tunnel, or one with a routing header.
inline std::vector<std::uint8_t> wrapped(RandomStream& random, const std::vector<std::uint8_t>& udp, Ecn2 ecn) {
  FrameSpec inner;
  inner.destination = address("fd00::2");
  inner.next_header = kNextHeaderUdp;
  inner.traffic_class = static_cast<std::uint8_t>(ecn);
  inner.payload = udp;
  std::vector<std::uint8_t> bytes = frame(inner);
  const std::uint32_t kind = random.below(4);
  if (kind < 2) return bytes;
  FrameSpec outer;
  outer.destination = address("fc00:0:1001::");
  outer.traffic_class = static_cast<std::uint8_t>(ecn);
  outer.payload.assign(bytes.begin() + 14, bytes.end());
  if (kind == 3) {
    outer.next_header = 43;
    std::vector<std::uint8_t> routing(24);
    routing[0] = kNextHeaderIpv6, routing[1] = 2;
    outer.payload.insert(outer.payload.begin(), routing.begin(), routing.end());
  }
  return frame(outer);
}

inline constexpr std::uint32_t kSequenceStep = 100'000;  // bytes
inline constexpr std::uint16_t kSequenceRanks = 4;

inline Ipv6Address rank_address(std::uint16_t rank) {
  Ipv6Address out = address("fd00::");
  out[15] = static_cast<std::uint8_t>(rank + 1);
  return out;
}

// Job 3: TCP whose beginning must be seen, or UDP by its port. Job 4: RoCE.
inline SymphonyBatch sequence_rules(bool by_sequence) {
  SymphonyBatch batch;
  for (std::uint16_t rank = 0; rank < kSequenceRanks; ++rank) {
    SymphonyBatch::Rule rule;
    rule.source = rank_address(rank);
    rule.destination = rank_address(static_cast<std::uint16_t>((rank + 1) % kSequenceRanks));
    rule.job = 3, rule.ring = 1, rule.rank = rank, rule.nranks = kSequenceRanks;
    if (!by_sequence) {
      rule.carrier = SymphonyBatch::Carrier::udp;
      batch.rules.push_back(rule);
      continue;
    }
    rule.step_bytes = kSequenceStep;
    rule.port = 5000;
    batch.rules.push_back(rule);
    rule.carrier = SymphonyBatch::Carrier::roce;
    rule.port = SYMPHONY_ANY_PORT;
    rule.job = 4, rule.mtu = 1024, rule.known = true, rule.base = 0xfffff0;  // wraps at once
    batch.rules.push_back(rule);
  }
  return batch;
}

inline std::vector<std::uint8_t> sequence_frame(std::uint16_t rank, std::uint8_t protocol,
                                                std::vector<std::uint8_t> transport) {
  FrameSpec spec;
  spec.source = rank_address(rank);
  spec.destination = rank_address(static_cast<std::uint16_t>((rank + 1) % kSequenceRanks));
  spec.next_header = protocol;
  spec.traffic_class = 2;
  spec.payload = std::move(transport);
  return frame(spec);
}
inline std::vector<std::uint8_t> tcp_frame(std::uint16_t rank, std::uint32_t sequence, std::size_t payload,
                                           bool syn = false) {
  std::vector<std::uint8_t> out(20 + payload);
  ln_store_be16(&out[0], 40'000);
  ln_store_be16(&out[2], 5000);
  ln_store_be16(&out[4], static_cast<std::uint16_t>(sequence >> 16));
  ln_store_be16(&out[6], static_cast<std::uint16_t>(sequence));
  out[12] = 0x50, out[13] = syn ? 2 : 0x10;
  return sequence_frame(rank, SYMPHONY_TCP_FLOW, out);
}
inline std::vector<std::uint8_t> roce_frame(std::uint16_t rank, std::uint32_t psn, std::uint8_t opcode = 7) {
  std::vector<std::uint8_t> out(8 + 12 + 40);
  ln_store_be16(&out[0], 50'000);
  ln_store_be16(&out[2], 4791);
  ln_store_be16(&out[4], static_cast<std::uint16_t>(out.size()));
  out[8] = opcode, out[15] = 0x77;
  out[17] = static_cast<std::uint8_t>(psn >> 16);
  ln_store_be16(&out[18], static_cast<std::uint16_t>(psn));
  return sequence_frame(rank, SYMPHONY_UDP_FLOW, out);
}
inline std::vector<std::uint8_t> port_frame(std::uint16_t rank, std::uint32_t step) {
  std::vector<std::uint8_t> out(40);
  ln_store_be16(&out[0], static_cast<std::uint16_t>(0xc000 | (step & 0xfff)));
  ln_store_be16(&out[2], 9);
  ln_store_be16(&out[4], 40);
  return sequence_frame(rank, SYMPHONY_UDP_FLOW, out);
}

// Rank 0 is slow; connections begin anywhere; now and then an acknowledgement, a stranger's packet.
class SequencePackets {
 public:
  SequencePackets(bool by_sequence, std::uint64_t seed) : by_sequence_(by_sequence), random_(seed, 0x736571, 0) {
    for (std::uint32_t& each : first_) each = static_cast<std::uint32_t>(random_());
  }
  std::pair<std::vector<std::uint8_t>, Leaving> next() {
    now_ += 1500;
    const auto rank = static_cast<std::uint16_t>(random_.below(kSequenceRanks));
    const Leaving leaving{now_, random_.below(4), false};
    if (random_.below(50) == 0) return {tcp_frame(9, 1, 100), leaving};
    if (!by_sequence_) {
      if (random_.below(rank == 0 ? 120 : 60) == 0) ++bytes_[rank];
      return {port_frame(rank, 4090 + static_cast<std::uint32_t>(bytes_[rank])), leaving};
    }
    if (random_.below(2)) {
      std::uint32_t& packets = psn_[rank];
      packets += random_.below(rank == 0 ? 2 : 4);
      if (random_.below(60) == 0) return {roce_frame(rank, 5, 0x11), leaving};
      return {roce_frame(rank, 0xfffff0 + packets), leaving};
    }
    if (!open_[rank] || random_.below(4000) == 0) {
      open_[rank] = random_.below(4) != 0;  // else its beginning goes by elsewhere, for now
      if (!open_[rank]) return {tcp_frame(rank, first_[rank] + 1, 100), leaving};
      bytes_[rank] = 0;
      return {tcp_frame(rank, first_[rank], 0, true), leaving};
    }
    if (random_.below(40) == 0) return {tcp_frame(rank, first_[rank] + 1, 0), leaving};  // an acknowledgement
    bytes_[rank] += random_.below(rank == 0 ? 1000 : 2000);
    return {tcp_frame(rank, first_[rank] + 1 + static_cast<std::uint32_t>(bytes_[rank]), 100), leaving};
  }

 private:
  bool by_sequence_;
  RandomStream random_;
  std::int64_t now_ = 0;
  std::uint32_t first_[kSequenceRanks] = {}, psn_[kSequenceRanks] = {};
  std::uint64_t bytes_[kSequenceRanks] = {};
  bool open_[kSequenceRanks] = {};
};

}  // namespace loomnet::test
