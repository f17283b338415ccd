// One pass over all ranks, and the meetings that it completes.
#include "live/rank_poller.hpp"

#include "collective/executor.hpp"

namespace loomnet {

RankPoller::RankPoller(double dilation)
    : dilation_(dilation), meetings_(rank::kMaxWorld, kMaxCommunicatorId + 1) {}

void RankPoller::add(RankBridge& bridge) {
  bridges_.push_back(&bridge);
  bridge.use_meetings(&meetings_);
}

bool RankPoller::poll(Picoseconds now) {
  if (bridges_.empty()) return false;
  const std::int64_t wall = wall_nanoseconds();
  bool worked = false;
  for (RankBridge* bridge : bridges_) {
    worked |= bridge->poll(now, wall, dilation_);
    bridge->flush(now);
  }
  for (const auto& [rank, notice] : meetings_.settle()) {
    for (RankBridge* bridge : bridges_) {
      if (bridge->port().rank() == rank) bridge->tell(notice, now);
    }
  }
  return worked;
}

}  // namespace loomnet
