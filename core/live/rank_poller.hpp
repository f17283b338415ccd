// Serves the ranks of a live run on the loop's thread.
#pragma once

#include <vector>

#include "engine/rank_bridge.hpp"
#include "live/live_loop.hpp"
#include "rank/rank_meetings.hpp"

namespace loomnet {

class RankPoller final : public LivePoller {
 public:
  explicit RankPoller(double dilation);
  void add(RankBridge& bridge);
  // Takes what the ranks have posted and hands them what has completed; true: there was work.
  bool poll(Picoseconds now) override;

 private:
  double dilation_;
  rank::Meetings meetings_;
  std::vector<RankBridge*> bridges_;
};

}  // namespace loomnet
