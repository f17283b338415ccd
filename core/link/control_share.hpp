// The control queue's share of a link while data waits (Araujo et al., arXiv 2605.04333: at most half).
//
// Control goes first, but has at most its share: what control has sent ahead is owed to the data behind
// it. The share is one of bytes, and a data packet is as long as many control packets: after a data
// packet, control may send as much as that packet has earned it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace loomnet {

class ControlShare {
 public:
  // `share` of the link, between 0 and 1, both excluded; throws std::invalid_argument.
  explicit ControlShare(double share) {
    if (!(share > 0 && share < 1)) {
      throw std::invalid_argument("LinkConfig.control_share: between 0 and 1, both excluded");
    }
    const auto part = static_cast<std::int64_t>(share * static_cast<double>(kWhole) + 0.5);
    share_ = std::clamp<std::int64_t>(part, 1, kWhole - 1);
  }

  // Control may go before data that waits.
  bool due() const { return credit_ <= 0; }
  void sent_control(std::uint32_t bytes, bool data_waits) {
    credit_ = data_waits ? credit_ + bytes * (kWhole - share_) : 0;
  }
  void sent_data(std::uint32_t bytes, bool data_left) {
    const std::int64_t earned = bytes * share_;
    credit_ = data_left ? std::max(credit_ - earned, -earned) : 0;
  }
  void forget() { credit_ = 0; }

 private:
  static constexpr std::int64_t kWhole = 256;
  std::int64_t share_;  // of kWhole
  // Control's lead over its share, while data waits: a byte of control adds kWhole - share_, a byte
  // of data takes share_ off.
  std::int64_t credit_ = 0;
};

}  // namespace loomnet
