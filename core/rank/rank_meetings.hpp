// The ranks of a job agree on the number of a new group here. Each member names the group to its NIC. Each
// member then hears of the other members and, once all have asked, of the group's number. Members that claim the
// same place in it hear of each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rank/rank_abi.hpp"

namespace loomnet::rank {

class Meetings {
 public:
  enum class Verdict {
    taken,
    senseless,  // its size or its position is out of range, or another member has named another size
    too_many,   // the rank has kMostOpen groups open, or all numbers are given
  };
  static constexpr std::size_t kMostOpen = 4096;  // groups of one rank for which a member is still missing

  // `world`: the most members that a group may have. `most`: how many numbers there are to give, from 0 on.
  explicit Meetings(std::uint32_t world, std::uint32_t most) : world_(world), most_(most) {}

  // Takes a rank's mark `meet`. A request that is refused changes nothing.
  Verdict ask(std::uint32_t rank, const MarkEntry& mark);
  // The notices for the requests since the last call, each with the rank that it is for. Groups get their
  // numbers in the order of their names, so that the order of asking between two calls does not matter.
  std::vector<std::pair<std::uint32_t, NoticeEntry>> settle();
  bool asked() const { return asked_; }
  // The group that this rank has asked for last and for which members are missing, as a script names the call
  // that makes it: "init_process_group of 4 ranks"; empty: none.
  std::string open(std::uint32_t rank) const;

 private:
  using Name = std::pair<std::uint64_t, std::uint64_t>;
  struct Group {
    std::uint32_t size = 0;
    struct Request {
      std::uint32_t number, position;
      bool whole;  // for its default group
    };
    std::map<std::uint32_t, Request> requests;        // by rank
    std::vector<std::uint32_t> fresh;                 // ranks that have asked since the last settle()
  };
  using Told = std::vector<std::pair<std::uint32_t, NoticeEntry>>;
  // Takes members out that claim the same place, and tells them.
  void part(Group& group, Told& out);

  std::uint32_t world_, most_, next_ = 0;
  std::uint32_t completed_ = 0;  // groups that get a number in the next settle()
  std::map<Name, Group> groups_;
  std::map<std::uint32_t, std::size_t> open_;  // by rank: groups for which a member is still missing
  bool asked_ = false;
};

}  // namespace loomnet::rank
