// Serves the ranks of a live run on the loop's thread.
#pragma once

#include <vector>

#include "engine/job_meetings.hpp"
#include "engine/rank_bridge.hpp"
#include "live/live_loop.hpp"

namespace loomnet {

class RankPoller final : public LivePoller {
 public:
  explicit RankPoller(double dilation);
  // A rank of this job.
  void add(RankBridge& bridge, std::uint32_t job = 0);
  // Takes what the ranks have posted and hands them what has completed; true: there was work.
  bool poll(Picoseconds now, LatenessHistogram& posts) override;

 private:
  double dilation_;
  JobMeetings meetings_;
  std::vector<RankBridge*> bridges_;
};

}  // namespace loomnet
