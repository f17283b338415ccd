// Real rank processes on virtual time. The clock stands while any rank computes. It moves when every rank waits
// in communication and has read all its entries. While a rank sleeps in a call that the engine knows nothing
// of, the clock moves no faster than the machine's own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/job_meetings.hpp"
#include "engine/network.hpp"
#include "engine/rank_bridge.hpp"

namespace loomnet {

class VirtualRanks {
 public:
  enum class Stop : std::uint8_t {
    reached,  // emulated `end`
    marked,   // a rank has set a mark: the caller may take it
    stopped,  // a traffic model has stopped the event queue: the caller may look
    waiting,  // wall time is up while a rank computes, or sleeps outside: see whether it still lives
    stuck,    // all ranks wait and nothing is left to happen, whatever `end` is; the clock has not moved
  };

  explicit VirtualRanks(Network& network);
  // The ranks of each job in order; a rank's place among all is what the calls below name it by. A rank whose
  // process is gone must be told by leave(), or the clock stands.
  void add(RankBridge& bridge, std::uint32_t job = 0);
  void leave(std::size_t place) { ranks_.at(place).present = false; }
  // True if all ranks outside `but` are blocked. Only then is it deterministic to notify them. Time
  // must not advance while a rank has exited but leave() was not called.
  bool others_wait(const std::vector<std::size_t>& but);
  // Tells all ranks that nothing is under way any more, so that operations that need a rank that has left will
  // not end.
  void strand();

  // These ranks have threads that have never communicated and may yet do so. Until the next call the clock goes
  // with the machine's wherever run() would else return `stuck`. Empty: no such rank.
  void may_yet_communicate(std::vector<std::size_t> ranks) { undecided_ = std::move(ranks); }

  // Runs to emulated `end` at most, for `wall_ms` at most.
  Stop run(Picoseconds end, int wall_ms);

  // run() looks at the wall clock after the instant that is served now.
  void look_soon() { look_soon_ = true; }
  // Emulated time that has passed at the machine's pace, and the ranks that slept outside or might yet communicate when
  // that pace last began.
  Picoseconds wall_paced() const { return wall_paced_; }
  const std::vector<std::size_t>& waited_for() const { return waited_for_; }

 private:
  struct Rank {
    RankBridge* bridge;
    bool present;
    std::uint64_t rung = 0;  // state word when its alarm last rang; while it is the same the rank has not moved
  };
  struct Due {
    Picoseconds asked = kNever, limit = kNever;
  };
  bool poll(bool& marked);
  bool submit();
  rank::Rest rest();
  bool settle_meetings();
  Due alarms() const;
  bool ring();
  bool news();
  void sleep(int most_ms, rank::Rest found);
  Picoseconds race_limit();

  Network& network_;
  std::vector<Rank> ranks_;
  JobMeetings meetings_;
  std::vector<rank::EventFd*> wakers_;
  bool racing_ = false;
  bool look_soon_ = false;
  std::int64_t race_began_ns_ = 0;
  Picoseconds wall_paced_from_{}, wall_paced_{};
  std::vector<std::size_t> waited_for_, undecided_;
};

}  // namespace loomnet
