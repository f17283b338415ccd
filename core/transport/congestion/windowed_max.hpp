// Running maximum over a sliding window, kept as the best three samples (Nichols' windowed filter,
// as the BBR draft uses it). `Time` is any counter that does not go back: rounds or picoseconds.
#pragma once

#include <array>
#include <cstdint>

namespace loomnet::congestion {

class WindowedMax {
 public:
  explicit WindowedMax(std::uint64_t window) : window_(window) {}
  double best() const { return best_[0].value; }
  void reset(double value, std::uint64_t time) { best_.fill({value, time}); }
  void update(double value, std::uint64_t time) {
    const Sample s{value, time};
    if (value >= best_[0].value || time - best_[2].time > window_) return best_.fill(s);
    if (value >= best_[1].value) {
      best_[1] = best_[2] = s;
    } else if (value >= best_[2].value) {
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

}  // namespace loomnet::congestion
