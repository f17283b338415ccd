// Groups by name until all members have asked; then a number, and the name is free again.
#include "nic/rank_meetings.hpp"

#include <algorithm>

namespace loomnet::rank {

bool Meetings::ask(std::uint32_t rank, const MarkEntry& mark) {
  const std::uint32_t size = mark.status;
  if (size == 0 || size > world_ || next_ >= most_) return false;
  Group& group = groups_[{mark.a, mark.b}];
  if (group.size == 0) group.size = size;
  if (group.size != size) return false;
  const auto position = static_cast<std::uint32_t>(mark.value >> 32);
  if (position >= size) return false;
  for (const auto& [other, request] : group.requests) {
    if (other != rank && request.position == position) return false;
  }
  // A rank asks again for a group that it gave up: its earlier request is void.
  const auto [at, first] =
      group.requests.insert_or_assign(rank, Group::Request{static_cast<std::uint32_t>(mark.value), position});
  if (first && ++open_[rank] > kMostOpen) return false;
  if (std::find(group.fresh.begin(), group.fresh.end(), rank) == group.fresh.end()) group.fresh.push_back(rank);
  asked_ = true;
  return true;
}

std::vector<std::pair<std::uint32_t, NoticeEntry>> Meetings::settle() {
  std::vector<std::pair<std::uint32_t, NoticeEntry>> out;
  if (!std::exchange(asked_, false)) return out;
  for (auto at = groups_.begin(); at != groups_.end();) {
    Group& group = at->second;
    if (group.fresh.empty()) {
      ++at;
      continue;
    }
    std::sort(group.fresh.begin(), group.fresh.end());
    const bool complete = group.requests.size() == group.size;
    const std::uint32_t number = complete ? ++next_ : 0;  // 1 + the group's number
    for (const auto& [rank, request] : group.requests) {
      const bool is_fresh = std::binary_search(group.fresh.begin(), group.fresh.end(), rank);
      // One that has just asked hears of all, the others of those that have just asked.
      for (const auto& [other, theirs] : group.requests) {
        if (!is_fresh && !std::binary_search(group.fresh.begin(), group.fresh.end(), other)) continue;
        out.push_back({rank,
                       {.kind = static_cast<std::uint32_t>(NoticeKind::came),
                        .peer = request.number,
                        .reason = theirs.position << 16 | other}});
      }
      // A rank takes its notices one by one: the number comes with the last, when it has heard of all.
      out.back().second.reserved = number;
    }
    group.fresh.clear();
    if (!complete) {
      ++at;
      continue;
    }
    for (const auto& [rank, request] : group.requests) --open_[rank];
    at = groups_.erase(at);
  }
  return out;
}

}  // namespace loomnet::rank
