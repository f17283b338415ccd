// Real rank processes on virtual time: the clock stands still while any of them computes. It moves when
// all of them wait in communication with nothing unread; where one sleeps in what the engine cannot see,
// it moves no faster than the machine's own clock.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/network.hpp"
#include "engine/rank_bridge.hpp"
#include "nic/rank_meetings.hpp"

namespace loomnet {

class VirtualRanks {
 public:
  enum class Stop : std::uint8_t {
    reached,  // emulated `end`
    marked,   // a rank has marked something: the caller may look
    waiting,  // wall time is up while a rank computes, or sleeps outside: see whether it still lives
    stuck,    // all ranks wait and nothing is left to happen, whatever `end` is; the clock has not moved
  };

  explicit VirtualRanks(Network& network);
  // Ranks in order. A rank whose process is gone must be told by leave(), or the clock stands.
  void add(RankBridge& bridge);
  void leave(std::size_t rank) { ranks_.at(rank).present = false; }
  // True if all ranks outside `but` rest. Only then is it deterministic to notify them. Time must not
  // advance while a rank has exited and leave() was not called.
  bool others_wait(const std::vector<std::size_t>& but);
  // Tells all ranks that nothing is under way: what still needs a rank that has left will not end.
  void strand();

  // These ranks have threads of which the engine cannot tell whether they will communicate: until the next
  // call the clock goes with the machine's where it would be stuck. Empty: none.
  void doubt(std::vector<std::size_t> ranks) { doubtful_ = std::move(ranks); }

  // Runs to emulated `end` at most, for `wall_ms` at most.
  Stop run(Picoseconds end, int wall_ms);

  // Emulated time that passed while a rank slept in what cannot be seen, and which ranks did so.
  Picoseconds raced() const { return raced_; }
  const std::vector<std::size_t>& racers() const { return racers_; }

 private:
  struct Rank {
    RankBridge* bridge;
    bool present;
    std::uint64_t rung = 0;  // state word at which its alarm was rung: it has not moved since
  };
  struct Due {
    Picoseconds asked = kNever, limit = kNever;
  };
  bool poll(bool& marked);
  rank::Rest rest();
  bool settle_meetings();
  Due alarms() const;
  bool ring();
  bool news();
  void sleep(int most_ms, rank::Rest found);
  Picoseconds race_limit();

  Network& network_;
  std::vector<Rank> ranks_;
  rank::Meetings meetings_;
  std::vector<rank::EventFd*> wakers_;
  bool racing_ = false;
  std::int64_t race_began_ns_ = 0;
  Picoseconds race_from_{}, raced_{};
  std::vector<std::size_t> racers_, doubtful_;
};

}  // namespace loomnet
