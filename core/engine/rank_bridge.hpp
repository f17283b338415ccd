// One rank process on one host of the network: its shared memory on one side, the host's emulated
// NIC on the other, and the record of what the rank says it does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/step_log.hpp"
#include "collective/sum_urgency.hpp"
#include "engine/network.hpp"
#include "rank/rank_meetings.hpp"
#include "rank/rank_port.hpp"

namespace loomnet {

// What a rank marked, on the engine's clock.
struct RankMark {
  rank::MarkKind kind;
  std::uint32_t status;
  Picoseconds at;
  std::uint64_t value, a, b;
};

// Takes reports of ranks to a controller.
class RankReports {
 public:
  virtual ~RankReports() = default;
  // A report of this rank has come; `number` names it to RankBridge::answer. False: it breaks the contract, and
  // the rank is cut off.
  virtual bool report(std::uint32_t rank, std::uint32_t number, std::span<const std::uint8_t> bytes,
                      Picoseconds now) = 0;
};

class RankBridge final : public NicClient {
 public:
  // A rank of `job`. Its staging memory is a region of that job; the NIC gives the key, whatever
  // geometry.staging_key says.
  RankBridge(Network& network, NodeId host, const rank::Geometry& geometry, JobId job = {});
  ~RankBridge() override;

  ClientId client() const { return client_; }
  // Of the rank's staging memory: the key that its peers' requests name.
  std::uint32_t key() const { return region_.key; }

  int memory_fd() const { return memory_.fd(); }
  int engine_event_fd() const { return engine_wake_.get(); }
  // Requests to `peer` go by this queue pair to the region of this key, the peer's staging memory.
  // Throws std::invalid_argument where the queue pair is another job's or another client's.
  void bind(std::uint32_t peer, QpNumber qp, std::uint32_t key = 1, std::uint16_t channel = 0);
  // Parts of sums go by this queue pair, in turn with those of earlier calls, and results to the rank's own staging memory. Throws as bind() does,
  // and where the geometry has no sums.
  void bind_sum(QpNumber qp);

  // Takes what the rank has posted and marked; true if there was anything. Marks carry the rank's
  // monotonic clock: `wall_ns` is that clock's reading at `now` (0 on the virtual clock, where a
  // mark is made at `now`), `dilation` wall time per emulated time.
  bool poll(Picoseconds now, std::int64_t wall_ns, double dilation);
  // How long the oldest request that the last poll() took had waited for it; 0: it took none.
  std::int64_t waited_ns() const { return waited_ns_; }
  // On the virtual clock, where another rank has the same NIC: poll() keeps requests and works until submit(),
  // so that the NIC gets those of one instant in an order that does not depend on which process ran first.
  void hold() { holds_ = true; }
  // Hands on what poll() has kept; true if there was anything.
  bool submit(Picoseconds now);
  bool shares_nic(const RankBridge& other) const { return &nic_ == &other.nic_; }
  // Sums whose priority the script does not state have it from here on.
  void weigh_sums(SumUrgencyConfig config);
  // Shows the rank what the NIC has for it.
  void flush(Picoseconds now) { port_.flush(now); }

  // `status`: of a peer that has gone, its exit status or signal; 0: not known.
  void tell(rank::NoticeKind kind, std::uint32_t peer, rank::GoneReason reason, Picoseconds now,
            std::uint32_t status = 0);
  void tell(const rank::NoticeEntry& notice, Picoseconds now) {
    port_.notify(notice);
    port_.flush(now);
  }
  void cut_off(RankFault fault, Picoseconds now) { port_.cut_off(fault, now); }
  // Before the rank attaches: its time limits go by the engine's clock.
  void use_virtual_clock() { memory_.engine_words().virtual_clock = 1; }
  // Where this rank's requests for groups go; they are ignored without.
  void use_meetings(rank::Meetings* meetings) { meetings_ = meetings; }

  // Where this rank's reports of a kind go, which is their first four bytes, the lowest first. Null: nowhere any more.
  // Reports are ignored while there is no client at all; otherwise a report of an unknown kind cuts the rank off.
  // Throws std::logic_error for a kind that has one.
  void use_reports(std::uint32_t kind, RankReports* reports);
  // Answers a report with up to rank::kMostAnswer bytes.
  void answer(std::uint32_t number, std::span<const std::uint8_t> bytes, Picoseconds now);

  // The rank's script shall end itself after this training step.
  void stop_at(std::uint32_t step, Picoseconds now) {
    port_.notify({static_cast<std::uint32_t>(rank::NoticeKind::last_step), 0, step, 0});
    port_.flush(now);
  }
  RankPort& port() { return port_; }
  rank::EventFd& engine_wake() { return engine_wake_; }
  RankFault fault() const { return port_.fault(); }
  // The marks that the rank has made since the last call. Ring steps are in steps(), and begins and ends of works in
  // the host's meter; of works only the begin of the rank's first one is here.
  std::vector<RankMark> take_marks();
  bool has_marks() const { return !marks_.empty(); }
  // Ring steps that the rank has received, each with its communicator as the channel, where it marks them.
  const StepLog& steps() const { return steps_; }
  // The operation that has been under way for longest, by name, and how many are; without one, the group that the
  // rank makes; empty: neither.
  std::string under_way() const;
  // When the rank's first operation began; kNever: none has.
  Picoseconds first_work() const { return first_work_; }
  std::uint64_t finished_works() const { return finished_; }
  std::uint64_t failed_works() const { return failed_; }
  // Of a rank that has left: operations that it never saw the end of.
  std::uint64_t unfinished_works() const { return cut_short_ + began_.size(); }

  void on_completion(const Completion& completion, Picoseconds now) override {
    news_ = true;
    if (urgency_ && port_.sums_by(completion.qp)) urgency_->part_ended(now);
    port_.complete(completion, now);
  }
  void on_arrival(const Arrival& arrival, Picoseconds now) override {
    news_ = true;
    port_.arrived(arrival, now);
  }
  // True if the NIC has had a completion or an arrival for the rank since the last call.
  bool take_news() { return std::exchange(news_, false); }

 private:
  // What a rank may make the engine keep, far above what training comes to; to_string(RankFault) says it. Works cost 24 B each in
  // the host's meter for as long as the run lasts, records (steps, hashes …) some 100 B in Python.
  static constexpr std::uint64_t kMostWorks = 1 << 24, kMostRecords = 1 << 22;
  // Virtual clock, where a rank can mark for ever at one instant.
  static constexpr std::uint64_t kMostWorksAtOnce = 1 << 20, kMostRecordsAtOnce = 1 << 16;
  // Live: 50,000 marks per second, and a second's worth at once.
  static constexpr std::int64_t kMarkCostNs = 20'000, kMarkBurst = 50'000;
  static constexpr std::size_t kMostOpenWorks = 65'536;  // with the time they began

  struct Marked {
    std::uint64_t works = 0, records = 0;
  };

  void post(RankWork& work, Picoseconds now);
  void take(const rank::MarkEntry& mark, Picoseconds now, std::int64_t wall_ns, double dilation);
  void tell(Tap& tap, const rank::MarkEntry& mark, Picoseconds at);
  bool take_report(const rank::MarkEntry& mark, Picoseconds now);
  // none: what these marks make the engine keep is within the bounds.
  RankFault excess(std::span<const rank::MarkEntry> marks, Picoseconds now, std::int64_t wall_ns);

  struct Region {
    Nic& nic;
    std::uint32_t key;
    Region(Nic& nic, std::uint32_t key) : nic(nic), key(key) {}
    ~Region() { nic.deregister(key); }
    Region(const Region&) = delete;
  };

  Network& network_;
  Nic& nic_;
  JobId job_;
  WorkMeter& meter_;
  Region region_;
  rank::EventFd engine_wake_;
  rank::Memory memory_;
  rank::WakeWord rank_wake_;
  RankPort port_;
  ClientId client_{};
  bool news_ = false;
  bool holds_ = false;
  std::vector<rank::MarkEntry> held_works_;
  std::vector<RankWork> held_posts_;
  std::int64_t allowance_ = kMarkBurst, marks_seen_ns_ = 0, waited_ns_ = 0;
  Marked marked_, marked_at_once_;  // of the run; at `instant_`
  Picoseconds instant_{}, latest_mark_{};
  rank::Meetings* meetings_ = nullptr;
  std::map<std::uint32_t, RankReports*> reports_;  // by kind
  std::vector<std::uint8_t> report_;  // of the report that is coming
  std::uint64_t finished_ = 0, failed_ = 0;
  Picoseconds first_work_ = kNever;
  std::uint64_t cut_short_ = 0;  // of the failed ones: those that ran when the rank closed their group
  // Works under way and when they began. On the virtual clock a rank's own clock says nothing of that.
  struct Begun {
    Picoseconds at;
    std::uint8_t collective;  // 1 + Collective of the first operation; 0: not known
  };
  std::map<std::uint64_t, Begun> began_;
  std::map<std::uint32_t, std::uint32_t> sequences_;  // by communicator: collectives begun
  std::vector<RankMark> marks_;
  StepLog steps_;
  std::optional<SumUrgency> urgency_;
};

}  // namespace loomnet
