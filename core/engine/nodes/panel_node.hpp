// An optical patch panel: what comes in by a port leaves by the port that it is patched to.
#pragma once

#include <span>
#include <vector>

#include "link/half_link.hpp"

namespace loomnet {

class PanelNode final : public LinkReceiver {
 public:
  explicit PanelNode(std::span<HalfLink* const> egress)
      : egress_(egress), circuits_(egress.size(), -1) {}
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override {
    const std::int32_t out = circuits_[port];
    if (out < 0) {
      ++dark_;
      return;
    }
    egress_[static_cast<std::size_t>(out)]->offer(std::move(packet), now);
  }
  // The port that each port is patched to, -1 for none. Throws std::invalid_argument.
  void set_circuits(std::vector<std::int32_t> circuits);
  std::uint64_t dark() const { return dark_; }  // packets that came in by a port without circuit

 private:
  std::span<HalfLink* const> egress_;  // by port
  std::vector<std::int32_t> circuits_;
  std::uint64_t dark_ = 0;
};

}  // namespace loomnet
