// The receiver's bitmap and the SACKs made from it. OCP MRC 1.0.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "transport/mrc/options.hpp"
#include "transport/mrc/psn.hpp"

namespace loomnet::mrc {

enum class Arrived : std::uint8_t { fresh, duplicate, beyond_window };

class ReceiveWindow {
 public:
  void start(PsnCount first) { cack_ = max_ = first - 1; }

  PsnCount cack() const { return cack_; }
  std::uint32_t out_of_order() const { return out_of_order_; }
  // The upper edge is inclusive (ours).
  Arrived classify(PsnCount n, std::uint32_t mpr) const {
    if (static_cast<std::int64_t>(n - cack_) <= 0) return Arrived::duplicate;
    if (n - cack_ > 128ull * mpr) return Arrived::beyond_window;
    return !received_.empty() && ring_test(received_, n) ? Arrived::duplicate : Arrived::fresh;
  }
  void accept(PsnCount n, std::uint32_t mpr);

  struct Sack {
    PsnCount base = 0;
    std::uint64_t bitmap = 0;
    bool more = false;  // unreported PSNs lie beyond the bitmap: send another at once
  };
  // Marks what the bitmap covers as reported. `prompt`: the trigger was marked or asked.
  Sack build(SackBase rule, PsnCount trigger, bool prompt);
  // Words of the rings that the next packet will touch.
  std::array<const void*, 2> places() const {
    const std::size_t word = received_.empty() ? 0 : max_ / 64 & (received_.size() - 1);
    return {received_.data() + word, reported_.data() + word};
  }
  // A probe wants everything told again.
  void forget_reports() { std::fill(reported_.begin(), reported_.end(), 0); }

 private:
  PsnCount lowest_unreported() const;  // max_ + 1 if there is none

  std::vector<std::uint64_t> received_, reported_;  // rings; only bits above cack_ are set
  PsnCount cack_ = 0, max_ = 0;
  std::uint32_t out_of_order_ = 0;
};

}  // namespace loomnet::mrc
