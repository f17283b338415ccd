// Queue pairs that a NIC connects later, when their jobs start. Until then no transport knows them, so
// that they send nothing and draw no random number.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "transport/transport.hpp"

namespace loomnet {

class LaterQueuePairs {
 public:
  struct QueuePair {
    Transport* by;  // connects it
    QpConfig config;
  };
  // True if it is the first of this time.
  bool add(Picoseconds at, Transport& by, QpConfig config) {
    const auto [due, first] = by_time_.try_emplace(at);
    const QpNumber number = config.local;
    due->second.push_back({&by, std::move(config)});
    by_number_.emplace(number, &due->second.back().config);
    return first;
  }
  // What a queue pair is to be connected with, which may be changed; null: it does not wait here.
  QpConfig* find(QpNumber qp) {
    const auto found = by_number_.find(qp);
    return found == by_number_.end() ? nullptr : found->second;
  }
  // Those of this time, in the order in which they were added; they wait no longer.
  std::deque<QueuePair> take(Picoseconds now) {
    const auto due = by_time_.extract(now);
    if (due.empty()) return {};
    for (const QueuePair& each : due.mapped()) by_number_.erase(each.config.local);
    return std::move(due.mapped());
  }
  bool empty() const { return by_time_.empty(); }

 private:
  std::map<Picoseconds, std::deque<QueuePair>> by_time_;  // their addresses stay
  std::unordered_map<QpNumber, QpConfig*> by_number_;
};

}  // namespace loomnet
