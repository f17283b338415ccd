// Traffic classes of MRC by DSCP, and the queue each one waits in.
// OCP MRC 1.0.
#pragma once

#include "packet/packet.hpp"

namespace loomnet::mrc {

namespace dscp {
inline constexpr std::uint8_t kNoTrim = 0;
inline constexpr std::uint8_t kTrimmable = 4;
inline constexpr std::uint8_t kTrimmableRetransmission = 8;
inline constexpr std::uint8_t kTrimmed = 12;         // set by switches
inline constexpr std::uint8_t kTrimmedLastHop = 16;  // set by switches
inline constexpr std::uint8_t kControl = 46;
}  // namespace dscp

struct TrafficClass {
  QueueClass queue = kDataClass;
  bool trimmable = false;
  constexpr bool operator==(const TrafficClass&) const = default;
};

constexpr TrafficClass class_of_dscp(std::uint8_t dscp_value) {
  switch (dscp_value) {
    case dscp::kControl:
    case dscp::kTrimmed:
    case dscp::kTrimmedLastHop:
      return {kControlClass, false};
    case dscp::kTrimmable:
    case dscp::kTrimmableRetransmission:
      return {kDataClass, true};
    default:
      return {kDataClass, false};
  }
}

}  // namespace loomnet::mrc
