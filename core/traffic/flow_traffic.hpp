// Flows: streams of RDMA writes between pairs of hosts, run inside the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/step_log.hpp"
#include "engine/network.hpp"

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
};

struct FlowResult {
  // end: last completion; kNever while unfinished. arrived: the last byte was in place at the
  // destination; kNever until the flow has ended well.
  Picoseconds start{}, end{}, arrived = kNever;
  std::uint64_t completed = 0;  // bytes
  Status status = Status::ok;
};

class FlowTraffic final : public EventHandler {
 public:
  // payload: real bytes are sent and compared at the far end as each write completes.
  FlowTraffic(Network& network, bool payload, JobId job = {});
  ~FlowTraffic() override;

  // The queue pair must be connected before start(), belongs to the job, and carries one flow at a
  // time. Returns the flow's index.
  std::size_t add(const FlowConfig& flow);
  // Schedules the flows added since the last call. One lookahead after the last open flow's
  // completion has reached its receiver, the event queue is stopped: run_until returns.
  void start();
  bool done() const { return open_ == 0; }
  const std::vector<FlowResult>& results() const { return results_; }
  // Of flows in ring steps: when the sender knew that all bytes of a step had arrived.
  const StepLog& steps() const { return steps_; }
  std::uint64_t wrong() const { return wrong_; }  // bytes that differed (payload only)

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  class Client;
  struct Flow {
    FlowConfig config;
    std::uint32_t key = 0;  // region at the destination
    std::uint64_t posted = 0;
    std::uint64_t writes = 0;  // posted
    std::vector<std::uint8_t> from, to;
    bool closed = false;
  };
  Client& client(NodeId host);
  void pump(std::size_t flow, Picoseconds now);
  void completed(std::size_t flow, const Completion& completion, Picoseconds now);
  void close(std::size_t flow, Status status, Picoseconds now);
  void end(std::size_t flow);

  Network& network_;
  bool payload_;
  JobId job_;
  ObjectId id_;
  std::vector<std::unique_ptr<Client>> clients_;  // by node id, sparse
  std::vector<Flow> flows_;
  std::vector<FlowResult> results_;
  std::size_t open_ = 0, started_ = 0;
  std::uint64_t wrong_ = 0;
  StepLog steps_;
};

}  // namespace loomnet
