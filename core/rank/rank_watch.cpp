#include "rank/rank_watch.hpp"

#include <algorithm>

namespace loomnet::rank {

void ThreadWatch::moved() {
  ++moves_;
  activity_ = Activity::computing;
  interval_ms_ = kNearMs;
  outside_looks_ = 0;
}

ThreadWatch::Look ThreadWatch::begin(bool owed, int but_tid) const {
  const int next = outside_looks_ + 1;
  return {.question = threads_.ask(owed, but_tid),
          .owed = owed,
          .children = next == kOutsideLooks || next % kChildrenLooks == 0,
          .moves = moves_};
}

void ThreadWatch::end(const Look& look, std::int64_t now_ns) {
  if (look.moves != moves_ || entering_.load(std::memory_order_seq_cst) != 0) return;
  threads_.answer(look.question, now_ns, std::int64_t{interval_ms_} * 1'000'000);
  if (look.seen == Activity::beside) {
    // Neither counts for a finding nor against it: what was found goes on to hold, but that all wait.
    if (activity_ == Activity::waiting) activity_ = Activity::computing;
    interval_ms_ = look.owed || threads_.some_wait() || threads_.in_future() ? kNearMs : kMaybeOutsideMs;
    return;
  }
  if (look.seen == Activity::outside) {
    if (outside_looks_++ == 0) outside_since_ns_ = now_ns;
    const bool settled = outside_looks_ >= kOutsideLooks && now_ns - outside_since_ns_ >= kOutsideNs;
    activity_ = settled ? Activity::outside : Activity::computing;
    interval_ms_ = settled ? kOutsideMs : kMaybeOutsideMs;
    return;
  }
  outside_looks_ = 0;
  activity_ = look.seen;
  if (look.seen == Activity::waiting) {
    interval_ms_ = kSettledMs;
  } else {
    const bool near = look.owed || threads_.some_wait() || threads_.in_future();
    interval_ms_ = near ? kNearMs : std::min(2 * interval_ms_, kFarMs);
  }
}

}  // namespace loomnet::rank
