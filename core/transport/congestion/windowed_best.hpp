// Running maximum or minimum over a sliding window, kept as the best three samples (Nichols' windowed
// filter, as the BBR draft uses it). Time is any counter that does not go back: rounds or picoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>

namespace loomnet::congestion {

// `AtLeastAsGood(a, b)`: a replaces b. `nothing`: best() before the first sample.
template <typename AtLeastAsGood>
class WindowedBest {
 public:
  WindowedBest(std::uint64_t window, double nothing) : window_(window) { reset(nothing, 0); }
  double best() const { return best_[0].value; }
  void reset(double value, std::uint64_t time) { best_.fill({value, time}); }
  // From the next update on.
  void set_window(std::uint64_t window) { window_ = window; }
  void update(double value, std::uint64_t time) {
    const Sample s{value, time};
    constexpr AtLeastAsGood good;
    if (good(value, best_[0].value) || time - best_[2].time > window_) return best_.fill(s);
    if (good(value, best_[1].value)) {
      best_[1] = best_[2] = s;
    } else if (good(value, best_[2].value)) {
      best_[2] = s;
    }
    if (time - best_[0].time > window_) {  // the best has aged out: the next ones move up
      best_ = {best_[1], best_[2], s};
      if (time - best_[0].time > window_) best_ = {best_[1], s, s};
    } else if (best_[1].time == best_[0].time && time - best_[1].time > window_ / 4) {
      best_[1] = best_[2] = s;  // a quarter has passed without a second sample
    } else if (best_[2].time == best_[1].time && time - best_[2].time > window_ / 2) {
      best_[2] = s;
    }
  }

 private:
  struct Sample {
    double value = 0;
    std::uint64_t time = 0;
  };
  std::uint64_t window_;
  std::array<Sample, 3> best_{};
};

class WindowedMax : public WindowedBest<std::greater_equal<double>> {
 public:
  explicit WindowedMax(std::uint64_t window) : WindowedBest(window, 0) {}
};

class WindowedMin : public WindowedBest<std::less_equal<double>> {
 public:
  explicit WindowedMin(std::uint64_t window) : WindowedBest(window, std::numeric_limits<double>::infinity()) {}
};

}  // namespace loomnet::congestion
