// Payload that queues dropped, by flow: losses that are signs of congestion. What links lose by themselves, or a
// dead port, is not in it.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "packet/packet.hpp"

namespace loomnet {

class QueueLosses {
 public:
  void add(const Packet& packet) {
    if (packet.payload.length > 0)
      bytes_[key(packet.attributes.job, packet.attributes.sequence)] += packet.payload.length;
  }
  // Bytes since the run began. `flow`: Attributes::sequence of the flow's packets.
  std::uint64_t bytes(std::uint32_t job, std::uint32_t flow) const {
    const auto found = bytes_.find(key(job, flow));
    return found == bytes_.end() ? 0 : found->second;
  }

 private:
  static std::uint64_t key(std::uint32_t job, std::uint32_t flow) { return std::uint64_t{job} << 32 | flow; }
  std::unordered_map<std::uint64_t, std::uint64_t> bytes_;
};

}  // namespace loomnet
