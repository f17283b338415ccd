// Depth of queues over time, bounded: while there is room every change, then per link and bin of
// time the highest depth and the last one, each at its own time. Bins double whenever the room is
// used up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

class QueueSeries {
 public:
  struct Point {
    Picoseconds at;
    std::uint64_t bytes;
  };

  explicit QueueSeries(std::size_t most) : most_(most) {}

  // Times of one link do not go back.
  void add(std::uint32_t half, std::uint64_t bytes, Picoseconds at) {
    Line& line = lines_[half];
    const std::size_t before = line.points.size();
    line.push({at, bytes}, bin_);
    points_ += line.points.size() - before;
    if (points_ > most_) coarsen();
  }

  Picoseconds bin() const { return bin_; }  // 0: every change
  std::size_t points() const { return points_; }
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const auto& [half, line] : lines_) visit(half, line.points);
  }

 private:
  struct Line {
    std::vector<Point> points;
    std::size_t in_bin = 0;  // points of the last bin: its highest, then its last if that differs

    void push(Point p, Picoseconds bin) {
      const bool same = bin.count > 0 && in_bin > 0 && points.back().at / bin == p.at / bin;
      if (!same) {
        points.push_back(p);
        in_bin = 1;
        return;
      }
      Point& highest = points[points.size() - in_bin];
      if (p.bytes >= highest.bytes) {
        highest = p;
        points.resize(points.size() - (in_bin - 1));
        in_bin = 1;
      } else if (in_bin == 1) {
        points.push_back(p);
        in_bin = 2;
      } else {
        points.back() = p;
      }
    }
  };

  void coarsen() {
    while (points_ > most_ / 2 && bin_ < seconds(1000)) {
      bin_ = std::max(microseconds(1), bin_ * 2);
      points_ = 0;
      for (auto& [half, line] : lines_) {
        Line thinner;
        for (const Point& p : line.points) thinner.push(p, bin_);
        line = std::move(thinner);
        points_ += line.points.size();
      }
    }
  }

  std::size_t most_;
  std::size_t points_ = 0;
  Picoseconds bin_{};
  std::map<std::uint32_t, Line> lines_;
};

}  // namespace loomnet
