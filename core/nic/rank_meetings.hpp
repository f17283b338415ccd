// How the ranks of a job agree on the number of a new group: each member names the group to its NIC,
// and all hear of each other and of the number. No member needs to know when the others ask.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "nic/rank_abi.hpp"

namespace loomnet::rank {

class Meetings {
 public:
  // `world`: ranks of the job. `most`: numbers to give, beginning with 0.
  explicit Meetings(std::uint32_t world, std::uint32_t most) : world_(world), most_(most) {}

  // A rank's mark `meet`. False: its size is none, members disagree on it, or the rank asks without end.
  bool ask(std::uint32_t rank, const MarkEntry& mark);
  // What to tell to which rank since the last call; groups in the order of their names, so that numbers
  // do not depend on the order of asking between two calls.
  std::vector<std::pair<std::uint32_t, NoticeEntry>> settle();
  bool asked() const { return asked_; }

 private:
  static constexpr std::size_t kMostOpen = 4096;  // groups that are being made, of one rank
  using Name = std::pair<std::uint64_t, std::uint64_t>;
  struct Group {
    std::uint32_t size = 0;
    struct Request {
      std::uint32_t number, position;
    };
    std::map<std::uint32_t, Request> requests;        // by rank
    std::vector<std::uint32_t> fresh;                 // ranks that the others have not heard of
  };
  std::uint32_t world_, most_, next_ = 0;
  std::map<Name, Group> groups_;
  std::map<std::uint32_t, std::size_t> open_;  // by rank
  bool asked_ = false;
};

}  // namespace loomnet::rank
