// Flows: streams of RDMA writes between pairs of hosts, run inside the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/step_log.hpp"
#include "engine/network.hpp"
#include "engine/network_watcher.hpp"

namespace loomnet {

// False identity of a hostile sender: the packets of a flow in ring steps state this in place of the truth.
struct RingClaim {
  std::uint32_t job = 0, communicator = 0;
  std::uint32_t first_step = 0;    // added to the flow's own steps
  std::uint16_t rank = 0, ranks = 0;  // not checked: a switch must bear any
};

struct FlowConfig {
  NodeId source = 0, destination = 0;
  QpNumber qp = 0;             // at the source
  std::uint64_t bytes = 0;     // in all
  std::uint32_t message = 1 << 20;  // bytes per write; the last may be shorter
  std::uint32_t depth = 4;     // writes outstanding
  Picoseconds start{};
  // Equal ring steps that the bytes are cut into, the last perhaps shorter; 0: none. The senders of a job's flows
  // are then ranks of one ring in what their packets say, although none waits for another: `rank` of `ranks`.
  std::uint32_t steps = 0;
  std::uint16_t rank = 0, ranks = 0;
  std::optional<RingClaim> claim = std::nullopt;  // of a flow with steps
  // The flow posts nothing at this time or later, and ends when the posted bytes are acknowledged.
  Picoseconds until = kNever;
};

struct FlowResult {
  // end: last completion; kNever while unfinished. arrived: the last byte was in place at the
  // destination; kNever until the flow has ended well.
  Picoseconds start{}, end{}, arrived = kNever;
  std::uint64_t completed = 0;  // bytes
  std::uint32_t flow = 0;       // index of add()
  Status status = Status::ok;
};

// Rounds of the same flows, each of which begins when the one before has ended.
struct FlowRepeat {
  std::uint32_t rounds = 1;
  Picoseconds gap{};          // from the end of a round to the begin of the next
  Picoseconds apart{};        // flows of a later round are moved by less than this each, drawn by the network's seed
  Picoseconds stop = kNever;  // no flow begins then or later
  bool whole = true;  // false: `stop` has kept flows of the first round from being added, so that it is the last
};

class FlowTraffic final : public EventHandler, private NetworkWatcher {
 public:
  struct Round {
    Picoseconds begin, end;  // of its first flow, of its last
  };
  // payload: real bytes are sent and compared at the far end as each write completes.
  FlowTraffic(Network& network, bool payload, JobId job = {});
  ~FlowTraffic() override;

  // The queue pair must be connected before start(), belongs to the job, and carries one flow at a
  // time. Returns the flow's index.
  std::size_t add(const FlowConfig& flow);
  // The flows that were added so far are the first round, and each round after it has the same flows. Called after the
  // last add() and before start(), which is then called once. Throws std::invalid_argument.
  void repeat(const FlowRepeat& repeat);
  // Schedules the flows added since the last call. The event queue is stopped, so that run_until returns,
  // - at the end of each round, where there are several: the moment at which its last flow ends;
  // - else one link delay (the fabric's shortest) after the last flow's end.
  // Both are the same times whichever way the network serves its events.
  void start();
  bool done() const { return over_; }
  Picoseconds ended() const { return latest_end_; }  // of the last flow so far
  // Rounds that ended, in order, without the last one if `stop` has cut it short.
  const std::vector<Round>& rounds() const { return ended_rounds_; }
  // Of all flows that were launched: round by round, each in the order of add().
  const std::vector<FlowResult>& results() const { return results_; }
  // As add() was given it.
  const FlowConfig& flow(std::size_t index) const { return flows_.at(index).config; }
  std::size_t flows() const { return flows_.size(); }
  JobId job() const { return job_; }
  // Indices in results() of the flows under way now, rising.
  std::vector<std::size_t> under_way() const;
  // What the transport had acknowledged to a part of the queue pair when the flow of this result began, which is under
  // way: bytes of the rounds before.
  std::uint64_t acked_before(std::size_t result, std::size_t part) const;
  // Indices in results() of the flows that have ended, one after another.
  const std::vector<std::uint32_t>& ended_flows() const { return ended_flows_; }
  // Of flows in ring steps: when the sender knew that all bytes of a step had arrived.
  const StepLog& steps() const { return steps_; }
  std::uint64_t wrong() const { return wrong_; }  // bytes that differed (payload only)

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  class Client;
  struct Flow {
    FlowConfig config;
    std::uint32_t key = 0;  // region at the destination
    std::size_t result = 0;  // of this round
    std::uint64_t posted = 0;
    std::uint64_t writes = 0, ended_writes = 0;  // posted, completed
    std::vector<std::uint8_t> from, to;
    std::vector<std::uint64_t> acked_before;  // by part; empty in the first round
    std::size_t place = 0;  // in active_
    bool open = false, told = true;  // launched and not closed; its destination knows that it has closed
  };
  // Bytes that a host's flows of a round send and receive.
  struct Load {
    std::uint64_t out = 0, in = 0;
  };
  // Events of kAnybody; any other number is the index in results() of a flow that begins.
  static constexpr std::uint64_t kOver = ~0ull, kOrder = kOver - 1;
  static constexpr std::int64_t kWorthWindows = 32;  // so many windows apart are worth the change
  static constexpr std::size_t kWorthFlows = 32;  // … of so many flows
  Client& client(NodeId host);
  void launch(std::size_t flow, Picoseconds start);
  bool launch_round(Picoseconds begin);
  void begin(std::size_t flow, Picoseconds now);
  void pump(std::size_t flow, Picoseconds now);
  void refill(std::size_t flow, Picoseconds now);
  void completed(std::size_t flow, const Completion& completion, Picoseconds now);
  void close(std::size_t flow, Status status, Picoseconds now);
  void tell(std::size_t flow);
  void round_over();
  void look_at_order(Picoseconds now);
  void hold_order(bool hold);
  Picoseconds earliest_end(Picoseconds now) const;
  void link_changed(LinkId) override {
    if (!over_) hold_order(true);
  }
  void circuits_changed(NodeId) override {}
  void tables_changed(NodeId) override {}

  Network& network_;
  bool payload_;
  JobId job_;
  ObjectId id_;
  std::vector<std::unique_ptr<Client>> clients_;  // by node id, sparse
  std::vector<Flow> flows_;
  std::vector<FlowResult> results_;
  std::vector<std::uint32_t> ended_flows_;
  std::vector<std::size_t> active_;  // flows under way
  std::size_t open_ = 0, started_ = 0;
  std::uint64_t wrong_ = 0;
  StepLog steps_;

  FlowRepeat repeat_;
  std::vector<Round> ended_rounds_;
  std::size_t first_result_ = 0;  // of this round
  std::uint32_t round_ = 0;
  Picoseconds began_ = kNever, latest_end_{};
  Picoseconds settle_{};  // one link delay: so long after its end a flow's destination hears of it
  bool failed_ = false, over_ = true;
  bool holding_ = false;  // the network's order of time
};

}  // namespace loomnet
