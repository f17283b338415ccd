// Keeps each group by its name until all members have asked. The group then gets its number, and its name
// can be used for another group.
#include "rank/rank_meetings.hpp"

#include <algorithm>

namespace loomnet::rank {

bool Meetings::ask(std::uint32_t rank, const MarkEntry& mark) {
  const std::uint32_t size = mark.status;
  const auto number = static_cast<std::uint32_t>(mark.value), position = static_cast<std::uint32_t>(mark.value >> 32);
  if (size == 0 || size > world_ || position >= size) return false;
  // Every check comes before the first change. A refused request that left its size or its position behind
  // would have the members refused that come after it.
  const Name name{mark.a, mark.b};
  const auto known = groups_.find(name);
  const bool exists = known != groups_.end();
  if (exists && known->second.size != size) return false;
  const bool again = exists && known->second.requests.contains(rank);
  if (exists) {
    for (const auto& [other, request] : known->second.requests) {
      if (other != rank && request.position == position) return false;
    }
  }
  if (!again && open_[rank] >= kMostOpen) return false;
  const bool completes = !again && (exists ? known->second.requests.size() : 0) + 1 == size;
  if (completes && next_ + completed_ >= most_) return false;

  Group& group = groups_[name];
  group.size = size;
  // A rank that asks again has given its earlier request up.
  group.requests.insert_or_assign(rank, Group::Request{number, position});
  if (!again) ++open_[rank];
  if (std::find(group.fresh.begin(), group.fresh.end(), rank) == group.fresh.end()) group.fresh.push_back(rank);
  completed_ += completes;
  asked_ = true;
  return true;
}

std::vector<std::pair<std::uint32_t, NoticeEntry>> Meetings::settle() {
  std::vector<std::pair<std::uint32_t, NoticeEntry>> out;
  if (!std::exchange(asked_, false)) return out;
  completed_ = 0;
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
      // A rank that has just asked hears of all members. The others hear of the ranks that have just asked.
      for (const auto& [other, theirs] : group.requests) {
        if (!is_fresh && !std::binary_search(group.fresh.begin(), group.fresh.end(), other)) continue;
        out.push_back({rank,
                       {.kind = static_cast<std::uint32_t>(NoticeKind::came),
                        .peer = request.number,
                        .reason = theirs.position << 16 | other}});
      }
      // A rank takes its notices one by one. The number is in the last of them, after the rank has heard of
      // every member.
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
