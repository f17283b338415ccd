// Groups that ranks make, by job.
#include "engine/job_meetings.hpp"

#include "collective/executor.hpp"
#include "rank/rank_memory.hpp"

namespace loomnet {

JobMeetings::Job::Job() : meetings(rank::kMaxWorld, kMaxCommunicatorId + 1) {}

void JobMeetings::add(RankBridge& bridge, std::uint32_t job) {
  Job& found = jobs_[job];
  found.bridges.push_back(&bridge);
  bridge.use_meetings(&found.meetings);
}

bool JobMeetings::asked() const {
  for (const auto& [number, job] : jobs_) {
    if (job.meetings.asked()) return true;
  }
  return false;
}

void JobMeetings::settle(Picoseconds now) {
  for (auto& [number, job] : jobs_) {
    if (!job.meetings.asked()) continue;
    for (const auto& [rank, notice] : job.meetings.settle()) {
      for (RankBridge* bridge : job.bridges) {
        if (bridge->port().rank() == rank) bridge->tell(notice, now);
      }
    }
  }
}

}  // namespace loomnet
