// Releasing tasks as their predecessors end, and moving each transfer in writes of one mebibyte.
#include "engine/graph_traffic.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet {

class GraphTraffic::Client final : public NicClient {
 public:
  Client(GraphTraffic& graph, Nic& nic) : graph_(graph), nic_(nic) {
    nic_.set_client(this);
    // Lengths only: one region is enough for all that arrives here.
    key_ = nic_.register_region(nullptr, 0, kMessage);
  }
  ~Client() override { nic_.set_client(nullptr); }
  void on_completion(const Completion& completion, Picoseconds now) override {
    graph_.completed(static_cast<std::uint32_t>(completion.id), completion, now);
  }
  void on_arrival(const Arrival& arrival, Picoseconds now) override {
    graph_.arrived(arrival.immediate, arrival.length, now);
  }
  Nic& nic() { return nic_; }
  std::uint32_t key() const { return key_; }

 private:
  GraphTraffic& graph_;
  Nic& nic_;
  std::uint32_t key_;
};

GraphTraffic::GraphTraffic(Network& network) : network_(network), id_(network.events().add(*this)) {}
GraphTraffic::~GraphTraffic() = default;

GraphTraffic::Client& GraphTraffic::client(NodeId host) {
  if (host >= clients_.size()) clients_.resize(host + 1);
  if (!clients_[host]) clients_[host] = std::make_unique<Client>(*this, network_.nic(host));
  return *clients_[host];
}

std::uint32_t GraphTraffic::add(const GraphTask& task) {
  if (tasks_.size() >= 0xffff'fffeu) throw std::length_error("graph: more than 2^32 - 2 tasks");
  if (task.transfer) {
    client(task.source);
    client(task.destination);
  } else if (task.duration.count < 0) {
    throw std::invalid_argument("graph: a delay must be 0 or more");
  }
  if (task.lane >= lanes_.size()) lanes_.resize(task.lane + 1);
  tasks_.push_back(task);
  states_.emplace_back();
  results_.emplace_back();
  ++open_;
  return static_cast<std::uint32_t>(tasks_.size() - 1);
}

void GraphTraffic::depend(std::uint32_t task, std::uint32_t on, bool acked) {
  if (task >= tasks_.size() || on >= tasks_.size() || task == on) {
    throw std::invalid_argument("graph: no such dependency");
  }
  (acked ? states_[on].next_acked : states_[on].next).push_back(task);
  ++states_[task].waits;
}

void GraphTraffic::start(Picoseconds at) { network_.events().schedule(at, id_, kStart); }

void GraphTraffic::on_event(std::uint64_t what, Picoseconds now) {
  if (what != kStart) return end(static_cast<std::uint32_t>(what), now);
  if (open_ == 0) return network_.events().stop();
  std::vector<std::uint32_t> first;
  for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
    if (states_[task].waits == 0) first.push_back(task);
  }
  for (const std::uint32_t task : first) ready(task, now);
}

void GraphTraffic::ready(std::uint32_t task, Picoseconds now) {
  const std::uint32_t lane = tasks_[task].lane;
  if (lane != 0) {
    if (lanes_[lane].busy) return lanes_[lane].queue.push_back(task);
    lanes_[lane].busy = true;
  }
  run(task, now);
}

void GraphTraffic::run(std::uint32_t task, Picoseconds now) {
  const GraphTask& t = tasks_[task];
  results_[task].begin = now;
  // Through the event queue even for no time: a long chain must not recurse.
  if (!t.transfer) return network_.events().schedule(now + t.duration, id_, task);
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_begins(t.source, {"transfer", task, 0, task, 1}, now);
  }
  client(t.source).nic().meter().begin(now);
  client(t.destination).nic().meter().begin(now);
  for (unsigned i = 0; i < kDepth && pump(task, now); ++i) {
  }
}

bool GraphTraffic::pump(std::uint32_t task, Picoseconds now) {
  const GraphTask& t = tasks_[task];
  State& s = states_[task];
  const bool bare = t.bytes == 0;  // posted once, by run()
  if (s.posted >= t.bytes && !bare) return false;
  WorkRequest request;
  request.id = task;
  request.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(kMessage, t.bytes - s.posted));
  request.remote_key = client(t.destination).key();
  request.immediate = task;
  request.sequence = task;
  request.opcode = Opcode::write_with_immediate;
  s.posted += request.length;
  client(t.source).nic().post(t.qp, request, now);
  return !bare;
}

void GraphTraffic::arrived(std::uint32_t task, std::uint32_t bytes, Picoseconds now) {
  if (task >= tasks_.size() || results_[task].end != kNever) return;
  State& s = states_[task];
  s.arrived += bytes;
  if (s.arrived < tasks_[task].bytes) return;
  const GraphTask& t = tasks_[task];
  if (Tap* tap = network_.tap()) [[unlikely]] tap->work_ends(t.source, task, t.bytes, true, now);
  client(t.source).nic().meter().end(results_[task].begin, now, 0);
  client(t.destination).nic().meter().end(results_[task].begin, now, t.bytes);
  end(task, now);
}

void GraphTraffic::completed(std::uint32_t task, const Completion& completion, Picoseconds now) {
  if (task >= tasks_.size() || failed_ != Status::ok) return;
  if (completion.status != Status::ok) {
    failed_ = completion.status;
    failed_task_ = task;
    return network_.events().stop();
  }
  State& s = states_[task];
  s.acked += completion.length;
  if (s.acked >= tasks_[task].bytes) return acked(task, now);
  pump(task, now);
}

void GraphTraffic::end(std::uint32_t task, Picoseconds now) {
  results_[task].end = now;
  if (const std::uint32_t lane = tasks_[task].lane; lane != 0) {
    Lane& l = lanes_[lane];
    l.busy = false;
    if (!l.queue.empty()) {
      const std::uint32_t next = l.queue.front();
      l.queue.pop_front();
      l.busy = true;
      run(next, now);
    }
  }
  release(states_[task].next, now);
  if (!tasks_[task].transfer) return acked(task, now);
  close(task);
}

void GraphTraffic::acked(std::uint32_t task, Picoseconds now) {
  results_[task].acked = now;
  release(states_[task].next_acked, now);
  close(task);
}

void GraphTraffic::release(const std::vector<std::uint32_t>& next, Picoseconds now) {
  for (const std::uint32_t task : next) {
    State& s = states_[task];
    if (s.waits == 0) continue;  // had begun: another of what it waited for any of
    if (tasks_[task].any) s.waits = 1;
    if (--s.waits == 0) ready(task, now);
  }
}

void GraphTraffic::close(std::uint32_t task) {
  const GraphResult& r = results_[task];
  if (r.end == kNever || r.acked == kNever) return;
  if (--open_ == 0) network_.events().stop();
}

}  // namespace loomnet
