// Releasing tasks as their predecessors end, and moving each transfer in writes of one mebibyte.
#include "traffic/graph_traffic.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet {

class GraphTraffic::Client final : public NicClient, public EventHandler {
 public:
  Client(GraphTraffic& graph, NodeId host)
      : graph_(graph), nic_(graph.network_.nic(host)), id_(graph.network_.events().add(*this, Network::domain(host))) {
    client_ = nic_.clients().add(*this, graph.job_, "graph");
    // Lengths only: one region is enough for all that arrives here.
    key_ = nic_.register_region(nullptr, 0, kMessage, graph.job_);
  }
  ~Client() override {
    nic_.deregister(key_);
    nic_.clients().remove(client_);
  }
  void take(QpNumber qp) { nic_.clients().own(qp, {graph_.job_, client_}); }
  WorkMeter& meter() { return nic_.meter(graph_.job_); }
  void on_completion(const Completion& completion, Picoseconds now) override {
    graph_.completed(static_cast<std::uint32_t>(completion.id), completion, now);
  }
  void on_arrival(const Arrival& arrival, Picoseconds now) override {
    graph_.arrived(arrival.immediate, arrival.length, now);
  }
  void on_event(std::uint64_t what, Picoseconds now) override {
    const auto task = static_cast<std::uint32_t>(what);
    if (what < kBegun) return graph_.end(task, now);  // a delay of this host
    meter().begin(graph_.results_[task].begin);
  }
  Nic& nic() { return nic_; }
  std::uint32_t key() const { return key_; }
  ObjectId id() const { return id_; }

 private:
  GraphTraffic& graph_;
  Nic& nic_;
  ObjectId id_;
  ClientId client_{};
  std::uint32_t key_ = 0;
};

GraphTraffic::GraphTraffic(Network& network, unsigned depth, JobId job)
    : network_(network), depth_(depth), job_(job), id_(network.events().add(*this)) {
  if (depth == 0) throw std::invalid_argument("graph: depth must be 1 or more");
}

GraphTraffic::~GraphTraffic() = default;

GraphTraffic::Client& GraphTraffic::client(NodeId host) {
  if (host >= clients_.size()) clients_.resize(host + 1);
  if (!clients_[host]) clients_[host] = std::make_unique<Client>(*this, host);
  return *clients_[host];
}

std::uint32_t GraphTraffic::add(const GraphTask& task) {
  if (tasks_.size() >= 0xffff'fffeu) throw std::length_error("graph: more than 2^32 - 2 tasks");
  if (task.transfer) {
    client(task.source).take(task.qp);
    client(task.destination);
  } else if (task.duration.count < 0) {
    throw std::invalid_argument("graph: a delay must be 0 or more");
  } else if (task.host) {
    client(*task.host);
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

// Where the event `on` happens: bytes arrive at the destination, acknowledgements at the source.
Domain GraphTraffic::domain_of(std::uint32_t on, bool acked) const {
  const GraphTask& t = tasks_[on];
  if (!t.transfer) return states_[on].domain;
  return Network::domain(acked ? t.source : t.destination);
}

// `task` waits for an event of this domain; false if it would have to be at two hosts.
bool GraphTraffic::find_host(std::uint32_t task, Domain event) {
  State& s = states_[task];
  // An event of kAnybody is served while all hosts wait, so it may release a task of any host.
  if (event == kAnybody || s.domain == event) return true;
  if (s.domain != kAnybody) return false;
  s.domain = event;
  return true;
}

// Finds the host of every task; false where an event of one host releases a task of another one at
// once, so that hosts cannot be served one after the other.
bool GraphTraffic::find_hosts() {
  std::vector<std::uint32_t> waits(tasks_.size()), order;
  order.reserve(tasks_.size());
  for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
    const GraphTask& t = tasks_[task];
    if (t.transfer || t.host) states_[task].domain = Network::domain(t.transfer ? t.source : *t.host);
    waits[task] = states_[task].waits;
    if (waits[task] == 0) order.push_back(task);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint32_t on = order[i];
    for (const bool acked : {false, true}) {
      for (const std::uint32_t task : acked ? states_[on].next_acked : states_[on].next) {
        if (!find_host(task, domain_of(on, acked))) return false;
        if (--waits[task] == 0) order.push_back(task);
      }
    }
  }
  if (order.size() < tasks_.size()) return false;
  // A delay of a lane begins where the one before it ends.
  for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
    if (tasks_[task].lane == 0) continue;
    Lane& lane = lanes_[tasks_[task].lane];
    if (!lane.domain) lane.domain = states_[task].domain;
    if (lane.domain != states_[task].domain) return false;
  }
  return true;
}

ObjectId GraphTraffic::handler_of(std::uint32_t task) const {
  const Domain domain = states_[task].domain;
  return domain == kAnybody ? id_ : clients_[domain - 1]->id();
}

void GraphTraffic::start(Picoseconds at, Picoseconds stop) {
  if (stop <= at) throw std::invalid_argument("graph: stop must be after the start");
  stop_ = stop;
  settle_ = network_.shortest_delay();
  latest_end_ = at;
  if (find_hosts()) {
    network_.use_lookahead();
  } else {  // whatever other jobs of the run would allow
    network_.forbid_lookahead();
    for (State& s : states_) s.domain = kAnybody;
  }
  network_.events().schedule(at, id_, kStart);
  // Of no host, so it is served while all of them wait: all before it has happened, nothing after it.
  if (stop != kNever) network_.events().schedule(stop, id_, kStop);
}

void GraphTraffic::on_event(std::uint64_t what, Picoseconds now) {
  if (what == kStop) return this->stop();
  if (what == kOver) {
    if (over_) return;
    over_ = true;
    return network_.job_ended(job_);
  }
  if (what != kStart) return end(static_cast<std::uint32_t>(what), now);
  if (open_ == 0) return finish();
  std::vector<std::uint32_t> first;
  for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
    if (states_[task].waits == 0) first.push_back(task);
  }
  for (const std::uint32_t task : first) ready(task, now);
}

void GraphTraffic::ready(std::uint32_t task, Picoseconds now) {
  const std::uint32_t lane = tasks_[task].lane;
  if (lane != 0) {
    if (lanes_[lane].busy) return lanes_[lane].queue.push(task);
    lanes_[lane].busy = true;
  }
  run(task, now);
}

void GraphTraffic::run(std::uint32_t task, Picoseconds now) {
  if (now >= stop_) return;
  const GraphTask& t = tasks_[task];
  results_[task].begin = now;
  // Through the event queue even for no time: a long chain must not recurse.
  if (!t.transfer) return network_.events().schedule(now + t.duration, handler_of(task), task);
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_begins(t.source, {"transfer", task, 0, task, 1, static_cast<std::uint32_t>(job_)}, now);
  }
  client(t.source).meter().begin(now);
  if (settle_.count == 0 || t.source == t.destination) {
    client(t.destination).meter().begin(now);
  } else {
    network_.events().schedule(now + settle_, client(t.destination).id(), kBegun + task);
  }
  for (unsigned i = 0; i < depth_ && pump(task, now); ++i) {
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
  request.attributes.job = static_cast<std::uint32_t>(job_);
  request.attributes.sequence = task;
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
  client(t.destination).meter().end(results_[task].begin, now, t.bytes);
  end(task, now);
}

void GraphTraffic::completed(std::uint32_t task, const Completion& completion, Picoseconds now) {
  if (task >= tasks_.size()) return;
  if (completion.status != Status::ok) return failed(task, completion.status, now);
  State& s = states_[task];
  s.acked += completion.length;
  const GraphTask& t = tasks_[task];
  if (s.acked < t.bytes) {
    pump(task, now);
    return;
  }
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_ends(t.source, static_cast<std::uint32_t>(job_), task, t.bytes, true, now);
  }
  client(t.source).meter().end(results_[task].begin, now, 0);
  acked(task, now);
}

// The others go on until the queue is stopped. Inside a window the failure that is called first need not be the
// first in time.
void GraphTraffic::failed(std::uint32_t task, Status status, Picoseconds now) {
  if (failed_ != Status::ok && (now > failed_at_ || (now == failed_at_ && task >= failed_task_))) return;
  failed_ = status;
  failed_task_ = task;
  failed_at_ = now;
  finish();
}

void GraphTraffic::end(std::uint32_t task, Picoseconds now) {
  results_[task].end = now;
  // What waits for the task is in its lane's queue before the lane takes the next one.
  release(states_[task].next, now);
  if (const std::uint32_t lane = tasks_[task].lane; lane != 0) {
    Lane& l = lanes_[lane];
    l.busy = !l.queue.empty();
    if (l.busy) {
      const std::uint32_t next = l.queue.top();
      l.queue.pop();
      run(next, now);
    }
  }
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
    if (s.waits == 0) continue;  // the task has begun, released by another predecessor
    if (tasks_[task].any) s.waits = 1;
    if (--s.waits == 0) ready(task, now);
  }
}

void GraphTraffic::close(std::uint32_t task) {
  const GraphResult& r = results_[task];
  if (r.end == kNever || r.acked == kNever) return;
  // Inside a window the task that closes last in the order of calls need not be the last in time.
  if (!stopped_ || works(task)) latest_end_ = std::max({latest_end_, r.end, r.acked});
  if (stopped_ && works(task)) --under_way_;
  --open_;
  if (ended_all() && !finishing_) finish();
}

void GraphTraffic::finish() {
  finishing_ = true;
  network_.events().schedule(ended() + settle_, id_, kOver);
}

void GraphTraffic::stop() {
  if (ended_all()) return;
  stopped_ = true;
  for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
    const GraphResult& r = results_[task];
    if (works(task) && r.begin != kNever && (r.end == kNever || r.acked == kNever)) ++under_way_;
  }
  if (under_way_ > 0) return;
  over_ = true;  // this event is served while all hosts wait
  network_.job_ended(job_);
}

// False for a delay that only waits, as for the time at which a flow is to start.
bool GraphTraffic::works(std::uint32_t task) const { return tasks_[task].transfer || tasks_[task].host; }

}  // namespace loomnet
