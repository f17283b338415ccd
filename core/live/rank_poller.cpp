// One pass over all ranks, and the meetings that it completes.
#include "live/rank_poller.hpp"

namespace loomnet {

RankPoller::RankPoller(double dilation) : dilation_(dilation) {}

void RankPoller::add(RankBridge& bridge, std::uint32_t job) {
  bridges_.push_back(&bridge);
  meetings_.add(bridge, job);
}

bool RankPoller::poll(Picoseconds now, LatenessHistogram& posts) {
  if (bridges_.empty()) return false;
  const std::int64_t wall = wall_nanoseconds();
  bool worked = false;
  for (RankBridge* bridge : bridges_) {
    worked |= bridge->poll(now, wall, dilation_);
    if (const std::int64_t waited = bridge->waited_ns()) {
      posts.record(Picoseconds{static_cast<std::int64_t>(static_cast<double>(waited) * 1000 / dilation_)});
    }
    bridge->flush(now);
  }
  meetings_.settle(now);
  return worked;
}

}  // namespace loomnet
