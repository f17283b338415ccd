// A NIC for tests: one thread that moves writes between the memories of local ranks by memcpy, in
// order and at once, and adds their parts of sums. Real processes run over it without privilege, network or clock. It is compiled
// into the module (_core.testing), because tests/python start PyTorch ranks against an installed
// module and compile nothing themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collective/staging.hpp"
#include "rank/rank_meetings.hpp"
#include "rank/rank_memory.hpp"
#include "rank/rank_port.hpp"

namespace loomnet::rank {

class LoopbackNic {
 public:
  // `channels`: queue pairs per peer. `sums`: the ranks have queue pairs for sums. Throws what Memory::create
  // throws.
  explicit LoopbackNic(std::uint32_t world, std::uint32_t channels = 1, bool sums = false);
  ~LoopbackNic();  // stop()
  LoopbackNic(const LoopbackNic&) = delete;
  LoopbackNic& operator=(const LoopbackNic&) = delete;

  std::uint32_t world() const { return static_cast<std::uint32_t>(hosts_.size()); }
  int memory_fd(std::uint32_t rank) const { return hosts_.at(rank)->memory.fd(); }
  int engine_event_fd(std::uint32_t rank) const { return hosts_.at(rank)->engine_wake.get(); }

  void start();
  void stop();
  // The process of `rank` has ended: the others are told.
  void gone(std::uint32_t rank, GoneReason reason);
  // Asks all ranks to end their job after this training step.
  void last_step(std::uint32_t step);
  // A stalled wire keeps taking requests and completes none.
  void set_stalled(bool stalled);
  // From now on writes go in packets of `packet` bytes, and of the packets that may be lost each `every`-th
  // is, as far as the write's tolerance goes. 0: none.
  void lose(std::uint32_t packet, std::uint32_t every);

  RankFault fault(std::uint32_t rank) const;
  std::vector<MarkEntry> take_marks(std::uint32_t rank);
  // All ranks wait in communication and nothing is unread (decided by the wire's own thread at
  // its last idle moment).
  bool all_waiting() const { return all_waiting_.load(); }
  std::uint64_t bytes() const { return bytes_.load(); }
  // Parts of sums that have been added, those of one rank.
  std::uint64_t sums() const { return sums_added_.load(); }
  // What a rank's parts of sums stated, in order.
  std::vector<Attributes> take_sum_attributes(std::uint32_t rank);

 private:
  struct Host {
    Host(const Geometry& geometry)
        : memory(Memory::create(geometry)), rank_wake(memory.engine_words().rank_wake), port(memory, rank_wake) {}
    EventFd engine_wake;
    Memory memory;
    WakeWord rank_wake;
    RankPort port;
    bool told_gone = false;
    std::vector<RankWork> held;  // while the wire is stalled
    std::vector<MarkEntry> marks;
    std::deque<WorkRequest> sums;  // posted, and not yet by all others
    std::vector<Attributes> sum_attributes;
  };
  void run();
  bool pass(Picoseconds now);
  void move(Host& from, const RankWork& work, Picoseconds now);
  bool add_sums(Picoseconds now);
  Missing copy(const WorkRequest& request, std::uint8_t* target);
  void tell_gone(std::uint32_t rank, GoneReason reason);

  StagingLayout layout_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Meetings meetings_;
  EventFd control_;
  mutable std::mutex mutex_;  // hosts_ against the test's calls
  bool stalled_ = false;
  std::uint32_t packet_ = 4096, lose_every_ = 0, until_loss_ = 0;
  std::atomic<bool> stop_{false}, all_waiting_{false};
  std::atomic<std::uint64_t> bytes_{0}, sums_added_{0};
  std::thread thread_;
};

}  // namespace loomnet::rank
