#include "traffic/step_pairs.hpp"

#include <algorithm>

namespace loomnet {

void StepSender::post(const WorkRequest& request, Picoseconds now) {
  waiting_.push_back(request);
  pump(now);
}

void StepSender::completed(QpNumber local, Picoseconds now) {
  for (Pair& pair : pairs_) {
    if (pair.local == local && pair.open > 0) --pair.open;
  }
  pump(now);
}

void StepSender::pump(Picoseconds now) {
  if (pumping_) return;
  pumping_ = true;
  while (!waiting_.empty() && claim(waiting_.front(), now)) {
    const WorkRequest request = waiting_.front();
    waiting_.pop_front();
    Pair& pair = pairs_[request.attributes.step_bytes > 0 ? current_ : 0];
    ++pair.open;
    order_->posted.push_back(pair.remote);
    nic_.post(pair.local, request, now);
  }
  pumping_ = false;
}

// Whether the request's queue pair may carry it: a new ring step takes the one that has rested longest, anew.
bool StepSender::claim(const WorkRequest& request, Picoseconds now) {
  const Attributes& a = request.attributes;
  if (a.step_bytes == 0 || step_ == a.ring_step) return true;
  const std::size_t next = current_ + 1 < pairs_.size() ? current_ + 1 : 1;
  if (pairs_[next].open > 0) return false;
  current_ = next;
  step_ = a.ring_step;
  ++renewals_;
  nic_.renew(pairs_[next].local, now);
  return true;
}

std::optional<Arrival> StepReceiver::next() {
  if (order_->posted.empty()) return std::nullopt;
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [&](const Arrival& arrival) { return arrival.qp == order_->posted.front(); });
  if (found == held_.end()) return std::nullopt;
  const Arrival arrival = *found;
  held_.erase(found);
  order_->posted.pop_front();
  return arrival;
}

}  // namespace loomnet
