// Keeping `depth` writes of each flow outstanding until its bytes are done, round after round.
//
// A round begins at the moment at which the last flow of the one before ends, whichever host that was. So where the
// network serves hosts apart, by windows of its lookahead, it must be in the order of time again before a round can
// end: see earliest_end().
#include "traffic/flow_traffic.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "clock/random.hpp"
#include "transport/number_index.hpp"

namespace loomnet {

namespace {

constexpr std::uint64_t kJitter = 0x6a697474;  // "jitt", purpose of the random streams here

// Bits per second that a host's ports carry together, out of it or into it; 0: without a limit.
double port_rates(Network& network, NodeId host, bool out) {
  double sum = 0;
  for (std::uint16_t port = 0; port < network.ports(host); ++port) {
    if (!network.egress(host, port)) continue;
    const Endpoint from = out ? Endpoint{host, port} : network.far_end({host, port});
    const BitsPerSecond rate = network.egress(from.node, from.port)->config().rate;
    if (rate.count == 0) return 0;
    sum += static_cast<double>(rate.count);
  }
  return sum;
}

std::uint64_t step_bytes(const FlowConfig& config) { return (config.bytes + config.steps - 1) / config.steps; }

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
    const std::uint32_t at = by_qp_.find(qp);
    if (at != NumberIndex::kAbsent && traffic_.flows_[flows_[at]].open) {
      throw std::invalid_argument("flow: its queue pair already carries another");
    }
    nic_.clients().own(qp, {traffic_.job_, client_});
    if (at != NumberIndex::kAbsent) {
      flows_[at] = flow;
      return;
    }
    by_qp_.add(qp, static_cast<std::uint32_t>(flows_.size()));
    flows_.push_back(flow);
  }
  void on_completion(const Completion& completion, Picoseconds now) override {
    const std::uint32_t at = by_qp_.find(completion.qp);
    if (at != NumberIndex::kAbsent) traffic_.completed(flows_[at], completion, now);
  }
  void on_arrival(const Arrival&, Picoseconds) override {}
  void on_caught_up(QpNumber qp, Picoseconds now) override {
    const std::uint32_t at = by_qp_.find(qp);
    if (at != NumberIndex::kAbsent) traffic_.refill(flows_[at], now);
  }
  // The flow of this result, which leads to this host, has ended. If a new round has begun meanwhile, the host knows
  // of that already.
  void on_event(std::uint64_t index, Picoseconds) override {
    const std::size_t flow = traffic_.results_[index].flow;
    if (traffic_.flows_[flow].result == index) traffic_.tell(flow);
  }
  Nic& nic() { return nic_; }
  WorkMeter& meter() { return nic_.meter(traffic_.job_); }
  ObjectId id() const { return id_; }

 private:
  FlowTraffic& traffic_;
  Nic& nic_;
  ObjectId id_;
  ClientId client_{};
  // By number, not by place: the numbers of a job's queue pairs rise through all hosts.
  NumberIndex by_qp_;
  std::vector<std::size_t> flows_;  // the last of each queue pair
};

FlowTraffic::FlowTraffic(Network& network, bool payload, JobId job)
    : network_(network), payload_(payload), job_(job), id_(network.events().add(*this)) {}

FlowTraffic::~FlowTraffic() {
  if (repeat_.rounds == 1) return;
  hold_order(false);
  network_.remove_watcher(*this);
}

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
  flow.open = true;
  flows_.push_back(std::move(flow));
  return flows_.size() - 1;
}

void FlowTraffic::repeat(const FlowRepeat& repeat) {
  if (repeat.rounds == 0) throw std::invalid_argument("flows: rounds must be 1 or more");
  if (repeat.gap.count < 0 || repeat.apart.count < 0) throw std::invalid_argument("flows: times must not be negative");
  if (started_ > 0 || repeat_.rounds > 1) throw std::invalid_argument("flows: repeat() comes once, before start()");
  repeat_ = repeat;
  if (!repeat.whole) repeat_.rounds = 1;
  if (repeat_.rounds == 1) return;
  network_.add_watcher(*this);
  hold_order(true);
}

void FlowTraffic::start() {
  if (started_ > 0 && repeat_.rounds > 1) throw std::invalid_argument("flows: rounds start once");
  if (started_ == flows_.size()) return;
  settle_ = network_.shortest_delay();
  over_ = false;
  Picoseconds first = kNever;
  for (std::size_t flow = started_; flow < flows_.size(); ++flow) first = std::min(first, flows_[flow].config.start);
  if (repeat_.rounds > 1) network_.events().schedule(first, id_, kOrder);
  for (; started_ < flows_.size(); ++started_) launch(started_, flows_[started_].config.start);
}

void FlowTraffic::launch(std::size_t index, Picoseconds start) {
  Flow& flow = flows_[index];
  flow.result = results_.size();
  flow.posted = flow.writes = flow.ended_writes = 0;
  flow.open = true;
  flow.told = false;
  began_ = std::min(began_, start);
  ++open_;
  network_.events().schedule(start, id_, results_.size());
  results_.push_back({start, kNever, kNever, 0, static_cast<std::uint32_t>(index), Status::ok});
}

// Launches the flows of the next round that begin before `stop`; false if none does.
bool FlowTraffic::launch_round(Picoseconds begin) {
  const double apart = flows_.size() > 1 ? static_cast<double>(repeat_.apart.count) : 0;
  // By seed and round alone, as the first round's are: the order of the run's jobs changes nothing.
  RandomStream draws(network_.seed(), round_, kJitter);
  std::vector<std::pair<std::size_t, Picoseconds>> starts;
  starts.reserve(flows_.size());
  for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
    const Picoseconds start = begin + Picoseconds{static_cast<std::int64_t>(draws.uniform() * apart)};
    if (start < repeat_.stop) starts.emplace_back(flow, start);
  }
  if (starts.empty()) return false;
  if (starts.size() < flows_.size()) {
    repeat_.whole = false;
    repeat_.rounds = round_ + 1;
  }
  first_result_ = results_.size();
  began_ = kNever;
  network_.events().schedule(begin, id_, kOrder);
  for (const auto& [flow, start] : starts) launch(flow, start);
  return true;
}

void FlowTraffic::on_event(std::uint64_t what, Picoseconds now) {
  if (what == kOver) return round_over();
  if (what == kOrder) return look_at_order(now);
  begin(results_[what].flow, now);
}

void FlowTraffic::begin(std::size_t index, Picoseconds now) {
  Flow& flow = flows_[index];
  const FlowConfig& config = flow.config;
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_begins(
        config.source,
        {"flow", flow.result, 0, static_cast<std::uint32_t>(flow.result), 1, static_cast<std::uint32_t>(job_)}, now);
  }
  flow.place = active_.size();
  active_.push_back(index);
  if (round_ > 0) flow.acked_before = client(config.source).nic().acked(config.qp);
  client(config.source).meter().begin(now);
  client(config.destination).meter().begin(now);
  if (config.until != kNever) return refill(index, now);
  for (std::uint32_t i = 0; i < config.depth; ++i) pump(index, now);
}

std::vector<std::size_t> FlowTraffic::under_way() const {
  std::vector<std::size_t> found;
  found.reserve(active_.size());
  for (const std::size_t flow : active_) found.push_back(flows_[flow].result);
  std::sort(found.begin(), found.end());
  return found;
}

std::uint64_t FlowTraffic::acked_before(std::size_t result, std::size_t part) const {
  const std::vector<std::uint64_t>& before = flows_[results_.at(result).flow].acked_before;
  return part < before.size() ? before[part] : 0;
}

void FlowTraffic::pump(std::size_t index, Picoseconds now) {
  Flow& flow = flows_[index];
  const FlowConfig& config = flow.config;
  if (!flow.open || flow.posted >= config.bytes || now >= config.until) return;
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
  request.attributes.sequence = static_cast<std::uint32_t>(flow.result);
  if (config.claim && config.steps > 0) [[unlikely]]
    claim(request.attributes, *config.claim);
  if (payload_) {
    std::uint8_t* from = flow.from.data() + offset;
    const std::uint64_t salt = std::uint64_t{round_} << 48;  // no round finds the bytes of the one before right
    for (std::uint32_t i = 0; i < request.length; ++i) {
      from[i] = static_cast<std::uint8_t>(mix64(salt + number * 4096 + i / 8) >> i % 8 * 8);
    }
    request.local = from;
  }
  flow.posted += request.length;
  client(config.source).nic().post(config.qp, request, now);
}

// For a flow with a lifetime. Bytes that are posted when its time is over are still sent, so it keeps few of them
// posted and unsent.
void FlowTraffic::refill(std::size_t index, Picoseconds now) {
  Flow& flow = flows_[index];
  Nic& nic = client(flow.config.source).nic();
  while (flow.open && flow.posted < flow.config.bytes && now < flow.config.until &&
         flow.writes - flow.ended_writes < flow.config.depth && !nic.ahead(flow.config.qp)) {
    pump(index, now);
  }
}

void FlowTraffic::completed(std::size_t index, const Completion& completion, Picoseconds now) {
  Flow& flow = flows_[index];
  if (!flow.open) return;
  if (completion.status != Status::ok) return close(index, completion.status, now);
  if (payload_) {
    const std::uint64_t offset = completion.id % flow.config.depth * flow.config.message;
    for (std::uint32_t i = 0; i < completion.length; ++i) {
      wrong_ += flow.from[offset + i] != flow.to[offset + i];
    }
  }
  FlowResult& result = results_[flow.result];
  const std::uint64_t before = result.completed;
  result.completed += completion.length;
  if (flow.config.steps > 0) {
    // Writes complete in the order of posting and none crosses a step's end.
    const std::uint64_t of_step = step_bytes(flow.config);
    if (result.completed % of_step == 0 || result.completed == flow.config.bytes) {
      steps_.add({flow.config.rank, 0, static_cast<std::uint32_t>(before / of_step), now});
    }
  }
  ++flow.ended_writes;
  const bool over = now >= flow.config.until && result.completed == flow.posted;
  if (over || result.completed >= flow.config.bytes) return close(index, Status::ok, now);
  if (flow.config.until != kNever) return refill(index, now);
  pump(index, now);
}

void FlowTraffic::close(std::size_t index, Status status, Picoseconds now) {
  Flow& flow = flows_[index];
  FlowResult& result = results_[flow.result];
  flow.open = false;
  flows_[active_.back()].place = flow.place;
  active_[flow.place] = active_.back();
  active_.pop_back();
  if (Tap* tap = network_.tap()) [[unlikely]] {
    tap->work_ends(flow.config.source, static_cast<std::uint32_t>(job_), flow.result, result.completed,
                   status == Status::ok, now);
  }
  result.end = now;
  result.status = status;
  ended_flows_.push_back(static_cast<std::uint32_t>(flow.result));
  failed_ |= status != Status::ok;
  // Inside a window the flow that closes last in the order of calls need not be the last in time.
  latest_end_ = std::max(latest_end_, now);
  client(flow.config.source).meter().end(result.start, now, 0);
  EventQueue& events = network_.events();
  events.schedule(now + settle_, client(flow.config.destination).id(), flow.result);
  if (--open_ > 0) return;
  events.schedule(repeat_.rounds > 1 ? latest_end_ : latest_end_ + settle_, id_, kOver);
}

// Lets the destination know that the flow has ended. Called in an event of the destination's host, or while no host is
// served.
void FlowTraffic::tell(std::size_t index) {
  Flow& flow = flows_[index];
  if (flow.told) return;
  flow.told = true;
  const FlowResult& result = results_[flow.result];
  Client& destination = client(flow.config.destination);
  if (result.status == Status::ok) results_[flow.result].arrived = destination.nic().last_placed(flow.key);
  destination.meter().end(result.start, result.end, result.completed);
  if (repeat_.rounds == 1) destination.nic().deregister(flow.key);
}

// All flows of the round have ended. Called while all hosts wait.
void FlowTraffic::round_over() {
  if (open_ > 0 || over_) return;  // flows were added meanwhile
  for (std::size_t i = first_result_; i < results_.size(); ++i) tell(results_[i].flow);
  if (repeat_.whole) ended_rounds_.push_back({began_, latest_end_});
  network_.iteration_ended(job_);
  if (!failed_ && ++round_ < repeat_.rounds && launch_round(latest_end_ + repeat_.gap)) return;
  over_ = true;
  network_.job_ended(job_);
  if (repeat_.rounds == 1) return;
  hold_order(false);
  for (const Flow& flow : flows_) client(flow.config.destination).nic().deregister(flow.key);
}

void FlowTraffic::hold_order(bool hold) {
  if (hold == holding_) return;
  holding_ = hold;
  hold ? network_.hold_order() : network_.release_order();
}

// Lets the network serve hosts apart, out of the order of time, until the earliest time at which the round can end, if
// that is many windows away.
void FlowTraffic::look_at_order(Picoseconds now) {
  const Picoseconds lookahead = network_.events().lookahead();
  if (over_ || lookahead.count == 0 || flows_.size() < kWorthFlows) return;
  const Picoseconds end = earliest_end(now);
  const bool hold = end < now + lookahead * kWorthWindows;
  hold_order(hold);
  if (!hold) network_.events().schedule(end, id_, kOrder);
}

// No flow's last completion can come before the bytes that are not posted yet have left its host and reached the
// other by these hosts' ports, and the acknowledgement of the last has come back. Links may change; link_changed()
// then goes back to the order of time.
Picoseconds FlowTraffic::earliest_end(Picoseconds now) const {
  std::map<NodeId, Load> loads;
  double longest = 0;  // seconds
  for (const Flow& flow : flows_) {
    if (flow.config.until != kNever) continue;  // it may end by its time, before its bytes are sent
    const std::uint64_t left = flow.open ? flow.config.bytes - flow.posted : 0;
    if (left == 0 || flow.config.source == flow.config.destination) continue;
    loads[flow.config.source].out += left;
    loads[flow.config.destination].in += left;
  }
  for (const auto& [host, load] : loads) {
    for (const bool out : {true, false}) {
      const double rates = port_rates(network_, host, out);
      if (rates > 0) longest = std::max(longest, static_cast<double>(out ? load.out : load.in) * 8 / rates);
    }
  }
  // A little less, for what the floating point has rounded up.
  return now + Picoseconds{static_cast<std::int64_t>(longest * 1e12 * (1 - 1e-9))};
}

}  // namespace loomnet
