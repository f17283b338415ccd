// Keeping `depth` writes of each flow outstanding until its bytes are done.
#include "traffic/flow_traffic.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace loomnet {

namespace {

std::uint64_t step_bytes(const FlowConfig& config) {
  return (config.bytes + config.steps - 1) / config.steps;
}

void claim(Attributes& says, const RingClaim& forged) {
  says.job = forged.job;
  says.communicator = forged.communicator;
  says.ring_step += forged.first_step;
  says.ring_rank = forged.rank;
  says.ring_size = forged.ranks;
}

}  // namespace

class FlowTraffic::Client final : public NicClient, public EventHandler {
 public:
  Client(FlowTraffic& traffic, NodeId host)
      : traffic_(traffic),
        nic_(traffic.network_.nic(host)),
        id_(traffic.network_.events().add(*this, Network::domain(host))) {
    client_ = nic_.clients().add(*this, traffic.job_, "flows");
  }
  ~Client() override { nic_.clients().remove(client_); }
  void add(QpNumber qp, std::size_t flow) {
    if (qp >= flows_.size()) flows_.resize(qp + 1, kNone);
    if (flows_[qp] != kNone && !traffic_.flows_[flows_[qp]].closed) throw std::invalid_argument("flow: its queue pair already carries another");
    nic_.clients().own(qp, {traffic_.job_, client_});
    flows_[qp] = flow;
  }
  void on_completion(const Completion& completion, Picoseconds now) override {
    if (completion.qp < flows_.size() && flows_[completion.qp] != kNone) {
      traffic_.completed(flows_[completion.qp], completion, now);
    }
  }
  void on_arrival(const Arrival&, Picoseconds) override {}
  // A flow to this host has ended.
  void on_event(std::uint64_t flow, Picoseconds) override { traffic_.end(flow); }
  Nic& nic() { return nic_; }
  WorkMeter& meter() { return nic_.meter(traffic_.job_); }
  ObjectId id() const { return id_; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  FlowTraffic& traffic_;
  Nic& nic_;
  ObjectId id_;
  ClientId client_{};
  std::vector<std::size_t> flows_;
};

FlowTraffic::FlowTraffic(Network& network, bool payload, JobId job)
    : network_(network), payload_(payload), job_(job), id_(network.events().add(*this)) {}

FlowTraffic::~FlowTraffic() = default;

FlowTraffic::Client& FlowTraffic::client(NodeId host) {
  if (host >= clients_.size()) clients_.resize(host + 1);
  if (!clients_[host]) clients_[host] = std::make_unique<Client>(*this, host);
  return *clients_[host];
}

std::size_t FlowTraffic::add(const FlowConfig& config) {
  if (config.bytes == 0) throw std::invalid_argument("flow: bytes must be 1 or more");
  if (config.message == 0) throw std::invalid_argument("flow: message must be 1 or more bytes");
  if (config.steps > config.bytes) throw std::invalid_argument("flow: steps must be at most its bytes");
  if (config.claim && config.steps == 0) throw std::invalid_argument("flow: a claim goes with steps");
  if (config.steps > 0 && config.rank >= config.ranks) {
    throw std::invalid_argument("flow: rank must be below ranks");
  }
  if (config.depth == 0) throw std::invalid_argument("flow: depth must be 1 or more");
  Flow flow{config};
  // Each outstanding write has its own piece of the region, so that bytes can be compared when it
  // completes, before the piece is written again.
  const std::uint64_t region = std::uint64_t{config.message} * config.depth;
  if (payload_) {
    flow.from.resize(region);
    flow.to.resize(region);
  }
  client(config.source).add(config.qp, flows_.size());
  flow.key = client(config.destination).nic().register_region(payload_ ? flow.to.data() : nullptr, 0, region, job_);
  flows_.push_back(std::move(flow));
  results_.push_back({config.start, kNever, kNever, 0, Status::ok});
  ++open_;
  return flows_.size() - 1;
}

void FlowTraffic::start() {
  for (; started_ < flows_.size(); ++started_) {
    network_.events().schedule(flows_[started_].config.start, id_, started_);
  }
}

void FlowTraffic::on_event(std::uint64_t what, Picoseconds now) {
  const FlowConfig& config = flows_[what].config;
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_begins(config.source, {"flow", what, 0, static_cast<std::uint32_t>(what), 1, static_cast<std::uint32_t>(job_)}, now);
  }
  client(config.source).meter().begin(now);
  client(config.destination).meter().begin(now);
  for (std::uint32_t i = 0; i < config.depth; ++i) pump(what, now);
}

void FlowTraffic::pump(std::size_t index, Picoseconds now) {
  Flow& flow = flows_[index];
  const FlowConfig& config = flow.config;
  if (flow.closed || flow.posted >= config.bytes) return;
  const std::uint64_t number = flow.writes++;
  const std::uint64_t offset = number % config.depth * config.message;
  WorkRequest request;
  request.id = number;
  std::uint64_t left = config.bytes - flow.posted;
  if (config.steps > 0) {  // a write belongs to one step
    Attributes& says = request.attributes;
    says.step_bytes = step_bytes(config);
    says.ring_step = static_cast<std::uint32_t>(flow.posted / says.step_bytes);
    says.step_offset = flow.posted % says.step_bytes;
    left = std::min(left, says.step_bytes - says.step_offset);
    says.step_bytes = std::min(says.step_bytes, config.bytes - says.ring_step * says.step_bytes);
    says.ring_rank = config.rank;
    says.ring_size = config.ranks;
  }
  request.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(config.message, left));
  request.remote_address = offset;
  request.remote_key = flow.key;
  request.attributes.job = static_cast<std::uint32_t>(job_);
  request.attributes.sequence = static_cast<std::uint32_t>(index);
  if (config.claim && config.steps > 0) [[unlikely]] claim(request.attributes, *config.claim);
  if (payload_) {
    std::uint8_t* from = flow.from.data() + offset;
    for (std::uint32_t i = 0; i < request.length; ++i) {
      from[i] = static_cast<std::uint8_t>(mix64(number * 4096 + i / 8) >> i % 8 * 8);
    }
    request.local = from;
  }
  flow.posted += request.length;
  client(config.source).nic().post(config.qp, request, now);
}

void FlowTraffic::completed(std::size_t index, const Completion& completion, Picoseconds now) {
  Flow& flow = flows_[index];
  if (flow.closed) return;
  if (completion.status != Status::ok) return close(index, completion.status, now);
  if (payload_) {
    const std::uint64_t offset = completion.id % flow.config.depth * flow.config.message;
    for (std::uint32_t i = 0; i < completion.length; ++i) {
      wrong_ += flow.from[offset + i] != flow.to[offset + i];
    }
  }
  FlowResult& result = results_[index];
  const std::uint64_t before = result.completed;
  result.completed += completion.length;
  if (flow.config.steps > 0) {
    // Writes complete in the order of posting and none crosses a step's end.
    const std::uint64_t of_step = step_bytes(flow.config);
    if (result.completed % of_step == 0 || result.completed == flow.config.bytes) {
      steps_.add({flow.config.rank, 0, static_cast<std::uint32_t>(before / of_step), now});
    }
  }
  if (result.completed >= flow.config.bytes) return close(index, Status::ok, now);
  pump(index, now);
}

void FlowTraffic::close(std::size_t index, Status status, Picoseconds now) {
  Flow& flow = flows_[index];
  flow.closed = true;
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_ends(flow.config.source, static_cast<std::uint32_t>(job_), index,
                   results_[index].completed, status == Status::ok, now);
  }
  results_[index].end = now;
  results_[index].status = status;
  client(flow.config.source).meter().end(flow.config.start, now, 0);
  EventQueue& events = network_.events();
  if (events.lookahead().count == 0) return end(index);
  events.schedule(now + events.lookahead(), client(flow.config.destination).id(), index);
}

// At the destination.
void FlowTraffic::end(std::size_t index) {
  const Flow& flow = flows_[index];
  FlowResult& result = results_[index];
  Client& destination = client(flow.config.destination);
  if (result.status == Status::ok) result.arrived = destination.nic().last_placed(flow.key);
  destination.nic().deregister(flow.key);
  destination.meter().end(flow.config.start, result.end, result.completed);
  if (--open_ == 0) network_.events().stop();
}

}  // namespace loomnet
