// A graph of delays and transfers, each begun when what it waits for has ended: execution traces and
// connection matrices, run inside the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "engine/network.hpp"

namespace loomnet {

struct GraphTask {
  // A transfer has a source, a destination and a queue pair of the source; a delay has none of them.
  bool transfer = false;
  NodeId source = 0, destination = 0;
  QpNumber qp = 0;               // belongs to the job
  std::uint64_t bytes = 0;       // 0: a bare immediate
  Picoseconds duration{};        // of a delay
  // Delays of one lane run one after another, of those that wait the lowest number first; 0: no lane.
  std::uint32_t lane = 0;
  std::optional<NodeId> host{};  // of a delay: where it passes
  bool any = false;              // begins when the first of what it waits for has ended
};

// Of a transfer, `end` is when its last byte has arrived and `acked` when its sender has heard so; of a
// delay both are the same.
struct GraphResult {
  Picoseconds begin = kNever, end = kNever, acked = kNever;
};

class GraphTraffic final : public EventHandler {
 public:
  // `depth`: writes that a transfer keeps outstanding.
  explicit GraphTraffic(Network& network, unsigned depth = 4, JobId job = {});
  ~GraphTraffic() override;

  // Returns the task's number.
  std::uint32_t add(const GraphTask& task);
  // `task` begins after `on` has ended or, with `acked`, has been acknowledged to its sender. Both
  // exist; throws std::invalid_argument otherwise.
  void depend(std::uint32_t task, std::uint32_t on, bool acked = false);
  // Begins at `at` what waits for nothing. When all has ended or a transfer failed, the event queue is stopped one
  // link delay (the fabric's shortest) later, at the same time whichever way the network serves its events. A graph in which no host waits for an event of another host, but for bytes and
  // acknowledgements that reach it, is run by the network's lookahead (Network::use_lookahead).
  // No task begins at `stop` or later, and tasks under way run to their end. Delays that belong to no host
  // are no work, and nobody waits for them. Throws std::invalid_argument where `stop` is not after `at`.
  void start(Picoseconds at, Picoseconds stop = kNever);
  bool done() const { return over_ || tasks_.empty(); }
  // Of the last end or acknowledgement so far, or of the first failure.
  Picoseconds ended() const { return failed_ == Status::ok ? latest_end_ : failed_at_; }
  // Status of the first transfer that failed, its number, and when it did.
  Status failed() const { return failed_; }
  std::uint32_t failed_task() const { return failed_task_; }
  Picoseconds failed_at() const { return failed_at_; }
  const std::vector<GraphResult>& results() const { return results_; }

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  class Client;
  static constexpr std::uint64_t kStart = ~0ull, kStop = kStart - 1, kOver = kStart - 2;
  static constexpr std::uint64_t kBegun = 1ull << 32;  // + task: told to its destination
  static constexpr std::uint32_t kMessage = 1u << 20;  // bytes per write
  struct State {
    std::uint32_t waits = 0;
    Domain domain = kAnybody;  // of the host where it begins, if the graph has that for every task
    std::uint64_t posted = 0, arrived = 0, acked = 0;
    std::vector<std::uint32_t> next, next_acked;
  };
  struct Lane {
    bool busy = false;
    std::optional<Domain> domain;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> queue;
  };
  Client& client(NodeId host);
  bool find_hosts();
  bool find_host(std::uint32_t task, Domain event);
  Domain domain_of(std::uint32_t on, bool acked) const;
  ObjectId handler_of(std::uint32_t task) const;
  void ready(std::uint32_t task, Picoseconds now);
  void run(std::uint32_t task, Picoseconds now);
  bool pump(std::uint32_t task, Picoseconds now);
  void arrived(std::uint32_t task, std::uint32_t bytes, Picoseconds now);
  void completed(std::uint32_t task, const Completion& completion, Picoseconds now);
  void failed(std::uint32_t task, Status status, Picoseconds now);
  void end(std::uint32_t task, Picoseconds now);
  void acked(std::uint32_t task, Picoseconds now);
  void release(const std::vector<std::uint32_t>& next, Picoseconds now);
  void close(std::uint32_t task);
  void stop();
  bool ended_all() const { return open_ == 0 || failed_ != Status::ok || (stopped_ && under_way_ == 0); }
  void finish();
  bool works(std::uint32_t task) const;

  Network& network_;
  unsigned depth_;
  JobId job_;
  ObjectId id_;
  std::vector<GraphTask> tasks_;
  std::vector<State> states_;
  std::vector<GraphResult> results_;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<Client>> clients_;  // by node
  std::size_t open_ = 0;
  Picoseconds stop_ = kNever;
  Picoseconds settle_{};  // one link delay: so long after its begin a transfer's destination hears of it
  Picoseconds latest_end_{};
  bool stopped_ = false;  // `stop_` has passed
  bool finishing_ = false, over_ = false;  // kOver is scheduled, has come
  std::size_t under_way_ = 0;  // tasks that had begun by then and have not ended
  Status failed_ = Status::ok;
  std::uint32_t failed_task_ = 0;
  Picoseconds failed_at_{};
};

}  // namespace loomnet
