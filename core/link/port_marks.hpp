// How a sending port marks and trims packets: all alike or, where transports of a run differ, each one's as its
// transport has it, as switches do by the class of traffic.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "link/link_config.hpp"
#include "link/port_queue.hpp"
#include "link/red.hpp"
#include "packet/packet.hpp"
#include "packet/trim.hpp"

namespace loomnet {

class PortMarks {
 public:
  explicit PortMarks(const LinkConfig& config)
      : red_{config.ecn_low, config.ecn_high, config.ecn_share},
        trim_{config.trim_dscp, config.trim_size, config.trim_fix_lengths} {
    if (!config.carriers) return;
    own_ = std::make_unique<std::vector<Own>>();
    for (const CarrierMarks& c : *config.carriers) {
      own_->push_back({{c.ecn_low, c.ecn_high, c.ecn_share}, {c.trim_dscp, c.trim_size, config.trim_fix_lengths}});
    }
  }

  const RedMarker& red(const Packet& packet) const {
    const Own* own = of(packet);
    return own ? own->red : red_;
  }
  const TrimOptions& trim(const Packet& packet) const {
    const Own* own = of(packet);
    return own ? own->trim : trim_;
  }
  // Thresholds shrink with the link's rate.
  void set_share(double share, const LinkConfig& whole) {
    const auto shrink = [share](RedMarker& red, std::uint64_t low, std::uint64_t high) {
      red.low = PortQueue::share_of(low, share);
      red.high = PortQueue::share_of(high, share);
    };
    shrink(red_, whole.ecn_low, whole.ecn_high);
    for (std::size_t i = 0; own_ && i < own_->size(); ++i) {
      const CarrierMarks& c = whole.carriers->at(i);
      shrink((*own_)[i].red, c.ecn_low, c.ecn_high);
    }
  }

 private:
  struct Own {
    RedMarker red;
    TrimOptions trim;
  };
  const Own* of(const Packet& packet) const {
    if (!own_) [[likely]]
      return nullptr;
    return packet.carrier < own_->size() ? &(*own_)[packet.carrier] : nullptr;
  }

  RedMarker red_;
  TrimOptions trim_;
  std::unique_ptr<std::vector<Own>> own_;  // null: all alike
};

}  // namespace loomnet
