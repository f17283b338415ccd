// Emulated time of a live run: now = (wall - t0) / D. The dilation exists here and nowhere else.
#pragma once

#include <time.h>

#include <cstdint>
#include <stdexcept>

#include "clock/time.hpp"

namespace loomnet {

inline std::int64_t wall_nanoseconds() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

class LiveClock {
 public:
  explicit LiveClock(double dilation = 1) : dilation_(dilation) {
    if (!(dilation > 0) || dilation > 1e9) {
      throw std::invalid_argument("the dilation must be above 0 and at most 1e9");
    }
  }
  // Emulated time `origin` is now.
  void start(Picoseconds origin) {
    zero_ = wall_nanoseconds();
    origin_ = origin;
  }
  Picoseconds now() const { return at(wall_nanoseconds()); }
  Picoseconds at(std::int64_t wall) const {
    const std::int64_t passed = wall - zero_;
    if (dilation_ == 1) return origin_ + nanoseconds(passed);
    return origin_ + Picoseconds{static_cast<std::int64_t>(static_cast<long double>(passed) * 1000 / dilation_)};
  }
  // Emulated time that passes in so much wall time.
  Picoseconds span(std::int64_t wall_ns) const {
    if (dilation_ == 1) return nanoseconds(wall_ns);
    return Picoseconds{static_cast<std::int64_t>(static_cast<double>(wall_ns) * 1000 / dilation_)};
  }
  // Wall time (CLOCK_MONOTONIC) when it will be `t`, rounded up; INT64_MAX for kNever.
  std::int64_t wall_of(Picoseconds t) const {
    if (t == kNever) return INT64_MAX;
    const long double passed = static_cast<long double>((t - origin_).count) / 1000 * dilation_;
    if (passed > 4e18l) return INT64_MAX;
    return zero_ + static_cast<std::int64_t>(passed) + 1;
  }
  double dilation() const { return dilation_; }

 private:
  double dilation_;
  std::int64_t zero_ = 0;
  Picoseconds origin_{};
};

}  // namespace loomnet
