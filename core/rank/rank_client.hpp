// The rank's side of the shared memory: posts the executor's writes, feeds it what the NIC answers.
// Sans-I/O apart from the waker; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/executor.hpp"
#include "collective/verbs.hpp"
#include "rank/rank_abi.hpp"
#include "rank/rank_memory.hpp"
#include "rank/rank_port.hpp"
#include "rank/rank_ring.hpp"

namespace loomnet::rank {

class RankClient final : public Verbs {
 public:
  // Throws std::runtime_error if the memory's staging area does not fit its own geometry.
  RankClient(Memory& memory, Waker& engine_wake);

  const StagingLayout& layout() const { return layout_; }
  std::uint8_t* staging() const { return staging_; }
  std::uint32_t rank() const { return memory_.geometry().rank; }
  std::uint32_t world() const { return memory_.geometry().world; }

  // Verbs. Writes go over the queue pairs to the peer in turn, and the peer takes them in the same
  // turn. Every write carries an immediate, so the peer sees on each queue pair how many have come.
  void post(JobRank peer, const Write& write) override;
  void post_sum(const Sum& sum) override;

  // Reads all that the NIC wrote and feeds `executor` (null: nothing uses the NIC). True if there
  // was anything. Notices are read first and acted on last: what a peer sent before it left counts.
  bool poll(CollectiveExecutor* executor);
  // Shows posts, marks and the state to the NIC, and wakes the NIC if it sleeps.
  void publish();

  // False: ring full, the mark is lost and counted in RankWords::marks_lost.
  bool mark(MarkKind kind, std::uint64_t value, std::uint64_t a = 0, std::uint64_t b = 0, std::uint32_t status = 0,
            std::uint64_t keep_room = 0);

  // Shows posts and marks as well, before the state. publish() must follow.
  void set_state(State state);
  State state() const { return state_; }
  // Before sleeping on the rank's wake word; false: there are entries to read already.
  bool announce_sleep();
  void cancel_sleep();

  // Why the NIC serves this rank no more; empty if it does.
  const std::string& failure() const { return failure_; }
  // Peers that left of their own accord, in no order.
  const std::vector<JobRank>& departed() const { return departed_; }
  // "rank 1 was killed; rank 2 has exited": the ranks that the run has reported gone; empty if
  // none.
  const std::string& absent() const { return absent_; }
  bool ended() const { return ended_; }  // the run is over
  // Training step after which the run wants the job to end; -1: none.
  std::int64_t last_step() const { return last_step_; }
  // Emulated time as the engine last showed it.
  std::int64_t now_ps() const { return memory_.engine_words().now_ps.load(std::memory_order_relaxed); }
  // When to be woken; see RankWords. To be set before the state that says "waiting".
  void set_alarms(std::int64_t alarm_ps, std::int64_t limit_ps);
  // Notices `stranded` so far.
  std::uint64_t stranded() const { return stranded_; }
  // Members that have come to the group of a request, and the group's number once all have.
  struct Meeting {
    std::vector<std::pair<std::uint32_t, JobRank>> came;  // rank in the group, in the job
    std::optional<std::uint32_t> number;
    std::vector<JobRank> doubles;  // ranks that claim this rank's place in the group
    bool refused = false;          // because of them
    bool over() const { return number || refused; }
  };
  Meeting& meeting(std::uint32_t request) { return meetings_[request]; }
  void forget_meeting(std::uint32_t request) { meetings_.erase(request); }
  // The answer to a report, as far as it has come.
  struct Answer {
    std::optional<std::uint32_t> length;
    std::vector<std::uint8_t> bytes;
    bool whole() const { return length && bytes.size() >= *length; }
  };
  // False where the mark ring has no room for all of it beside `keep_room` marks.
  bool report(std::uint32_t number, std::span<const std::uint8_t> bytes, std::uint64_t keep_room);
  Answer& answer(std::uint32_t report) { return answers_[report]; }
  void forget_answer(std::uint32_t report) { answers_.erase(report); }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Peer {
    std::uint16_t next_out = 0, next_in = 0;   // queue pair whose turn it is
    std::vector<std::deque<ArrivalEntry>> early;  // per queue pair: arrived before their turn
  };
  void feed_arrival(CollectiveExecutor& executor, const ArrivalEntry& arrival);
  void note(const NoticeEntry& notice);
  void apply(const NoticeEntry& notice, CollectiveExecutor* executor);
  static void take_answer(const NoticeEntry& notice, Answer& answer);
  void fail(CollectiveExecutor* executor, const std::string& reason);
  void show();
  void drain_backlog();
  void submit(const Submission& s);
  bool push(const Submission& s);

  Memory& memory_;
  Waker& engine_wake_;
  StagingLayout layout_;
  std::uint8_t* staging_;
  RingProducer<Submission> submissions_;
  RingProducer<MarkEntry> marks_;
  RingConsumer<CompletionEntry> completions_;
  RingConsumer<ArrivalEntry> arrivals_;
  RingConsumer<NoticeEntry> notices_;
  std::deque<Submission> backlog_;  // posted while the ring, or the completion bound, was full
  std::vector<Peer> peers_;
  std::uint64_t outstanding_ = 0, writes_ = 0, bytes_ = 0;
  std::uint64_t epoch_ = 0;
  State state_ = State::starting;
  bool unannounced_ = false;  // entries were published for which the NIC has not been woken
  std::string failure_, absent_;
  std::vector<JobRank> departed_;
  bool ended_ = false;
  std::int64_t last_step_ = -1;
  std::uint64_t stranded_ = 0;
  std::map<std::uint32_t, Meeting> meetings_;  // by request, while it lasts
  std::map<std::uint32_t, Answer> answers_;    // by report, while it is waited for
};

}  // namespace loomnet::rank
