// Proportional rate reduction (RFC 6937) with the slow-start bound only while a recovery makes
// progress without new losses, else the conservative bound, as Linux chooses.
#pragma once

#include <algorithm>
#include <cstdint>

namespace loomnet::tcp {

class Prr {
 public:
  void begin(std::uint64_t flight) {
    recover_flight_ = std::max<std::uint64_t>(flight, 1);
    delivered_ = out_ = 0;
  }
  void sent(std::uint64_t bytes) { out_ += bytes; }
  // The window after an ACK that delivered `delivered` bytes and left `pipe` in flight.
  std::uint64_t window(std::uint64_t delivered, std::uint64_t pipe, std::uint64_t ssthresh, std::uint32_t mss,
                       bool progress) {
    delivered_ += delivered;
    std::uint64_t send = 0;
    if (pipe > ssthresh) {
      const auto share = static_cast<std::uint64_t>(
          (static_cast<unsigned __int128>(delivered_) * ssthresh + recover_flight_ - 1) / recover_flight_);
      send = share > out_ ? share - out_ : 0;
    } else {
      std::uint64_t limit = std::max(delivered_ > out_ ? delivered_ - out_ : 0, delivered);
      if (progress) limit += mss;
      send = std::min(ssthresh - pipe, limit);
    }
    if (out_ == 0) send = std::max<std::uint64_t>(send, mss);  // the first repair goes at once
    return pipe + send;
  }

 private:
  std::uint64_t recover_flight_ = 1, delivered_ = 0, out_ = 0;
};

}  // namespace loomnet::tcp
