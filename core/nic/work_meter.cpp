// Book-keeping of work, payload and silence at one host.
#include "nic/work_meter.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace loomnet {

void WorkMeter::begin(Picoseconds at) {
  auto place = open_.end();  // most begins are told in the order of time
  while (place != open_.begin() && at < std::prev(place)->at) --place;
  if (place != open_.begin() && std::prev(place)->at == at) {
    ++std::prev(place)->works;
  } else {
    open_.insert(place, {at, 1});
  }
}

void WorkMeter::end(Picoseconds began, Picoseconds at, std::uint64_t bytes) {
  if (open_.empty()) return;
  work_.push_back({began, at, bytes});
  last_end_ = std::max(last_end_, at);
  // A rank may have more works open than the engine remembers begins of: then the latest one before `began` ends.
  auto found = std::upper_bound(open_.begin(), open_.end(), began,
                                [](Picoseconds sought, const Begun& each) { return sought < each.at; });
  if (found != open_.begin()) --found;
  add_busy({found->at, at});
  if (--found->works == 0) open_.erase(found);
}

// Most ends are told nearly in the order of time, so the search begins at the last interval.
void WorkMeter::add_busy(Interval added) {
  if (added.end <= added.begin) return;
  auto after = busy_.end();
  while (after != busy_.begin() && added.end <= std::prev(after)->begin) --after;
  auto first = after;
  while (first != busy_.begin() && added.begin < std::prev(first)->end) --first;
  if (first == after) {
    busy_.insert(after, added);
    return;
  }
  first->begin = std::min(first->begin, added.begin);
  first->end = std::max(std::prev(after)->end, added.end);
  busy_.erase(std::next(first), after);
}

Picoseconds WorkMeter::opened() const {
  if (open_.empty()) return {};
  const Picoseconds earliest = open_.front().at;
  const auto later = std::upper_bound(busy_.begin(), busy_.end(), earliest,
                                      [](Picoseconds at, const Interval& each) { return at < each.begin; });
  if (later == busy_.begin() || std::prev(later)->end <= earliest) return earliest;
  return std::prev(later)->begin;
}

void WorkMeter::payload(std::uint32_t bytes, Picoseconds now) {
  bytes_ += bytes;
  if (is_silence(last_payload_, now)) gaps_.push_back({last_payload_, now});
  last_payload_ = now = std::max(now, last_payload_);
  while (static_cast<std::size_t>(now / bin_) >= most_bins_) double_bins();
  add(static_cast<std::size_t>(now / bin_), bytes);
}

// Bins come in the order of time.
void WorkMeter::add(std::size_t bin, std::uint64_t bytes) {
  if (runs_.empty() || bin > runs_.back().first + (filled_.size() - runs_.back().at) + kRoom) {
    runs_.push_back({bin, filled_.size()});
  }
  filled_.resize(std::max(filled_.size(), runs_.back().at + (bin - runs_.back().first) + 1));
  filled_.back() += bytes;
}

void WorkMeter::double_bins() {
  const std::vector<Run> runs = std::exchange(runs_, {});
  const std::vector<std::uint64_t> filled = std::exchange(filled_, {});
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::size_t end = run + 1 < runs.size() ? runs[run + 1].at : filled.size();
    for (std::size_t at = runs[run].at; at < end; ++at) add((runs[run].first + (at - runs[run].at)) / 2, filled[at]);
  }
  bin_ = bin_ * 2;
}

std::vector<std::uint64_t> WorkMeter::bins() const {
  std::vector<std::uint64_t> found;
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const std::size_t end = run + 1 < runs_.size() ? runs_[run + 1].at : filled_.size();
    found.resize(runs_[run].first);
    found.insert(found.end(), filled_.begin() + static_cast<std::ptrdiff_t>(runs_[run].at),
                 filled_.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return found;
}

// busy_ and gaps_ are each in the order of time, and no two intervals of one of them overlap.
std::vector<WorkMeter::Interval> WorkMeter::silences() const {
  std::vector<Interval> found;
  std::size_t gap = 0;
  for (const Interval& each : busy_) {
    while (gap < gaps_.size() && gaps_[gap].end <= each.begin) ++gap;
    for (std::size_t at = gap; at <= gaps_.size(); ++at) {  // at == size: the gap since the last payload
      const Interval quiet = at < gaps_.size() ? gaps_[at] : Interval{last_payload_, each.end};
      if (quiet.begin >= each.end) break;
      const Interval inside{std::max(quiet.begin, each.begin), std::min(quiet.end, each.end)};
      if (is_silence(inside.begin, inside.end)) found.push_back(inside);
    }
  }
  return found;
}

void WorkMeter::close(Picoseconds now) {
  for (const Begun& each : open_) add_busy({each.at, now});
  open_.clear();
}

}  // namespace loomnet
