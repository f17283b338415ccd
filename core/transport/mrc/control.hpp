// Packets that carry no payload wait here as small records, one queue per port and class, and
// become packets when the port pulls: so a SACK tells what is true when it leaves.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "packet/mrc_headers.hpp"
#include "transport/mrc/entropy.hpp"
#include "transport/mrc/psn.hpp"

namespace loomnet::mrc {

struct Control {
  Op kind = Op::sack;
  std::uint8_t mark = 0;        // SACK m
  std::uint8_t code = 0;        // NACK reason, AETH syndrome or endpoint operation
  bool retransmission = false;  // echo of the trigger's RTX
  bool prompt = false;          // the trigger was marked or asked for an answer
  bool probe_reply = false;
  bool coarse = false;        // tsr of what is echoed
  bool first = true;          // not a follow-up of a SACK already sent
  std::uint16_t tx_ts = 0;    // echoed
  std::uint16_t id = 0;       // probe or request
  std::uint32_t owner = 0;    // index of its queue pair, or of its peer (endpoint operations)
  std::uint32_t entropy = 0;  // echoed
  std::uint32_t message = 0;  // AETH msn
  std::uint32_t uplink = 0;   // path to take where `fixed_path`
  bool fixed_path = false;
  PsnCount psn = 0;  // trigger
};

// First-in first-out ring that grows up to a bound.
class ControlQueue {
 public:
  static constexpr std::size_t kLimit = 8192;
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Control& front() { return ring_[head_]; }
  void pop() {
    head_ = (head_ + 1) & (ring_.size() - 1);
    --size_;
  }
  bool push(const Control& c) {
    if (size_ == kLimit) return false;
    if (size_ == ring_.size()) grow();
    ring_[(head_ + size_++) & (ring_.size() - 1)] = c;
    return true;
  }

 private:
  void grow() {
    std::vector<Control> larger(ring_.empty() ? 16 : ring_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_ = std::move(larger);
    head_ = 0;
  }
  std::vector<Control> ring_;
  std::size_t head_ = 0, size_ = 0;
};

}  // namespace loomnet::mrc
