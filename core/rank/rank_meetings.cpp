// Keeps each group by its name until all members have asked. The group then gets its number, and its name
// can be used for another group.
#include "rank/rank_meetings.hpp"

#include <algorithm>

namespace loomnet::rank {

Meetings::Verdict Meetings::ask(std::uint32_t rank, const MarkEntry& mark) {
  const std::uint32_t size = mark.status & ~kDefaultGroup;
  const auto number = static_cast<std::uint32_t>(mark.value), position = static_cast<std::uint32_t>(mark.value >> 32);
  if (size == 0 || size > world_ || position >= size) return Verdict::senseless;
  // Every check comes before the first change. A refused request that left its size behind would have the
  // members refused that come after it.
  const Name name{mark.a, mark.b};
  const auto known = groups_.find(name);
  const bool exists = known != groups_.end();
  if (exists && known->second.size != size) return Verdict::senseless;
  const bool again = exists && known->second.requests.contains(rank);
  if (!again && open_[rank] >= kMostOpen) return Verdict::too_many;
  const bool completes = !again && (exists ? known->second.requests.size() : 0) + 1 == size;
  if (completes && next_ + completed_ >= most_) return Verdict::too_many;

  Group& group = groups_[name];
  group.size = size;
  // A rank that asks again has given its earlier request up.
  group.requests.insert_or_assign(rank, Group::Request{number, position, (mark.status & kDefaultGroup) != 0});
  if (!again) ++open_[rank];
  if (std::find(group.fresh.begin(), group.fresh.end(), rank) == group.fresh.end()) group.fresh.push_back(rank);
  completed_ += completes;
  asked_ = true;
  return Verdict::taken;
}

std::string Meetings::open(std::uint32_t rank) const {
  const Group* last = nullptr;
  Group::Request request{};
  for (const auto& [name, group] : groups_) {
    const auto found = group.requests.find(rank);
    if (found == group.requests.end() || (last && found->second.number < request.number)) continue;
    last = &group;
    request = found->second;
  }
  if (!last) return {};
  return (request.whole ? "init_process_group of " : "new_group of ") + std::to_string(last->size) +
         (last->size == 1 ? " rank" : " ranks");
}

void Meetings::part(Group& group, Told& out) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> claims;  // ranks by position
  for (const auto& [rank, request] : group.requests) claims[request.position].push_back(rank);
  for (const auto& [position, ranks] : claims) {
    if (ranks.size() < 2) continue;
    for (const std::uint32_t rank : ranks) {
      for (const std::uint32_t other : ranks) {
        if (other == rank) continue;
        out.push_back({rank,
                       {.kind = static_cast<std::uint32_t>(NoticeKind::same_place),
                        .peer = group.requests.at(rank).number,
                        .reason = other,
                        .reserved = 0}});
      }
      out.back().second.reserved = 1;
    }
    for (const std::uint32_t rank : ranks) {
      group.requests.erase(rank);
      std::erase(group.fresh, rank);
      --open_[rank];
    }
  }
}

Meetings::Told Meetings::settle() {
  Told out;
  if (!std::exchange(asked_, false)) return out;
  completed_ = 0;
  for (auto at = groups_.begin(); at != groups_.end();) {
    Group& group = at->second;
    if (group.fresh.empty()) {
      ++at;
      continue;
    }
    part(group, out);
    if (group.requests.empty()) {
      at = groups_.erase(at);
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
