// Real rank processes on virtual time: the clock stands still while any of them computes, and moves
// only when all of them wait in communication with nothing unread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/network.hpp"
#include "engine/rank_bridge.hpp"

namespace loomnet {

class VirtualRanks {
 public:
  enum class Stop : std::uint8_t {
    reached,  // emulated `end`
    marked,   // a rank has marked something: whoever runs this may look
    waiting,  // wall time is up while a rank computes: see whether it still lives
    stuck,    // all ranks wait and nothing is left to happen before `end`: with kNever, for ever
  };

  explicit VirtualRanks(Network& network) : network_(network) {}
  // Ranks in order. A rank whose process is gone must be told by leave(), or the clock stands.
  void add(RankBridge& bridge) { ranks_.push_back({&bridge, true}); }
  void leave(std::size_t rank) { ranks_.at(rank).present = false; }
  // Whether all ranks but these wait, so that what they are told now finds them where it finds them
  // in every run. Time stands while one of these has ended and not left.
  bool others_wait(const std::vector<std::size_t>& but);

  Stop run(Picoseconds end, int wall_ms);

 private:
  struct Rank {
    RankBridge* bridge;
    bool present;
  };
  bool poll(bool& marked);
  bool quiescent();
  bool news();

  Network& network_;
  std::vector<Rank> ranks_;
};

}  // namespace loomnet
