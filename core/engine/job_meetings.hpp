// Groups that ranks make, by job: ranks and groups are numbered within a job.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/rank_bridge.hpp"
#include "rank/rank_meetings.hpp"

namespace loomnet {

class JobMeetings {
 public:
  // A rank of this job; the bridge asks for its groups here from now on.
  void add(RankBridge& bridge, std::uint32_t job);
  // Whether a rank has asked since the last settle().
  bool asked() const;
  // Numbers the groups that are complete and tells their ranks.
  void settle(Picoseconds now);

 private:
  struct Job {
    Job();
    rank::Meetings meetings;
    std::vector<RankBridge*> bridges;
  };
  std::map<std::uint32_t, Job> jobs_;  // a map's elements stay where they are
};

}  // namespace loomnet
