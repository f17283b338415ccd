// One batch of requests for each change of a panel's circuits.
#include "live/host_carriers.hpp"

#include <algorithm>

#include "live/live_clock.hpp"

namespace loomnet {

void HostCarriers::set(const CarrierChange& change, std::int64_t wall) {
  const auto same = [&](const Noted& each) {
    return each.change.node == change.node && each.change.port == change.port;
  };
  if (std::ranges::any_of(noted_, same)) flush();
  noted_.push_back({change, wall});
}

void HostCarriers::flush() {
  if (noted_.empty()) return;
  if (!worker_) worker_ = std::make_unique<Worker>("loomnet-carrier", realtime_);
  worker_->post([this, batch = std::move(noted_)] {
    std::vector<CarrierChange> changes;
    for (const Noted& each : batch) changes.push_back(each.change);
    fabric_.set_carriers(changes);
    const bool all_up = std::ranges::all_of(changes, &CarrierChange::up);
    (all_up ? up_ : down_).record(nanoseconds(wall_nanoseconds() - batch.front().wall));
  });
  noted_.clear();
}

}  // namespace loomnet
