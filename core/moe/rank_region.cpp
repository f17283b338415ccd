#include "moe/rank_region.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet::moe {

RankRegion::RankRegion(Network& network, RankRegionOptions options, std::vector<RankBridge*> ranks)
    : network_(network),
      options_(std::move(options)),
      ranks_(std::move(ranks)),
      id_(network.events().add(*this)),
      rows_(ranks_.size()),
      sum_(std::size_t{servers()} * servers()),
      last_sum_(sum_.size()) {
  if (ranks_.empty() || options_.server_of.size() != ranks_.size() ||
      ranks_.size() > circuits::DemandReport::kMostExperts) {
    throw std::invalid_argument("region: a server for each of its ranks");
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    try {
      ranks_[rank]->use_reports(circuits::DemandReport::kMagic, this);
    } catch (const std::logic_error&) {  // no destructor follows
      while (rank-- > 0) ranks_[rank]->use_reports(circuits::DemandReport::kMagic, nullptr);
      throw;
    }
  }
}

RankRegion::~RankRegion() {
  for (RankBridge* rank : ranks_) rank->use_reports(circuits::DemandReport::kMagic, nullptr);
}

std::uint32_t RankRegion::servers() const {
  return options_.server_of.empty() ? 0 : *std::ranges::max_element(options_.server_of) + 1;
}

void RankRegion::use_circuits(NodeId panel, const circuits::RegionOptions& options, std::vector<NicPort> nics,
                              std::vector<LightQueuePair> pairs, Picoseconds crossing) {
  if (options.servers != servers()) throw std::invalid_argument("region: servers of its ranks and of its panel");
  traffic_ = std::make_unique<QueuePairTraffic>(network_, servers(), crossing, options.drain_limit.count > 0,
                                                [this](Picoseconds now) {
                                                  if (driver_) driver_->drained(now);
                                                });
  for (LightQueuePair& pair : pairs) traffic_->add(std::move(pair));
  circuits::RegionOptions mine = options;
  if (options_.repatch == Repatch::worthwhile) mine.worthwhile = options_.weighing;
  driver_ = std::make_unique<RegionDriver>(network_, *traffic_, panel, mine, std::move(nics),
                                           static_cast<RegionDriver::Listener&>(*this));
  told_ = driver_->ports();
}

// No rank is answered before all ranks of the region have reported, so a rank has at most one report open. A second
// one, or one that differs from the others' step, breaks the contract.
bool RankRegion::report(std::uint32_t rank, std::uint32_t number, std::span<const std::uint8_t> bytes,
                        Picoseconds now) {
  const auto at = std::ranges::find_if(ranks_, [&](RankBridge* each) { return each->port().rank() == rank; });
  std::optional<circuits::DemandReport> found = circuits::DemandReport::parse(bytes);
  const auto source = static_cast<std::size_t>(at - ranks_.begin());
  if (!found || at == ranks_.end() || found->source != source || found->region != options_.region ||
      found->tokens.size() != ranks_.size() || rows_[source]) {
    return false;
  }
  for (const std::optional<Row>& other : rows_) {
    if (!other) continue;
    const circuits::DemandReport& theirs = other->report;
    if (theirs.phase != found->phase || theirs.layer != found->layer || theirs.iteration != found->iteration ||
        theirs.micro_batch != found->micro_batch) {
      return false;
    }
    break;
  }
  rows_[source] = Row{std::move(*found), number};
  if (++reported_ == ranks_.size()) network_.events().schedule(now + options_.latency, id_, kTake);
  return true;
}

void RankRegion::on_event(std::uint64_t what, Picoseconds now) {
  if (what == kTake) return take(now);
  answer(now);
}

// Of each two servers.
std::vector<std::uint64_t> RankRegion::between(std::span<const std::uint32_t> tokens) const {
  const std::size_t count = ranks_.size(), servers = this->servers();
  std::vector<std::uint64_t> found(servers * servers);
  for (std::size_t s = 0; s < count; ++s) {
    for (std::size_t d = 0; d < count; ++d) {
      const std::uint32_t from = options_.server_of[s], to = options_.server_of[d];
      if (from != to) found[from * servers + to] += tokens[s * count + d];
    }
  }
  return found;
}

void RankRegion::take(Picoseconds now) {
  const circuits::DemandReport& first = rows_.front()->report;
  Round round{.key = {first.iteration, first.layer, first.micro_batch, first.phase >= 2, false},
              .phase = first.phase,
              .asked = now,
              .answered = now,
              .tokens = {}};
  for (const std::optional<Row>& row : rows_) {
    round.tokens.insert(round.tokens.end(), row->report.tokens.begin(), row->report.tokens.end());
  }
  const std::vector<std::uint64_t> tokens = between(round.tokens);
  open_ = std::move(round);
  ask(*open_, tokens, first.token_bytes, now);
  look(now);
}

// Asks the controller for the circuits of this round, as the policy says. A combine sends back the tokens of its
// dispatch; both have the same key, so the controller patches once for them.
void RankRegion::ask(const Round& round, const std::vector<std::uint64_t>& tokens, std::uint32_t token_bytes,
                     Picoseconds now) {
  const std::vector<std::uint64_t> demand = circuits::pair_demand(tokens, servers(), options_.duplex);
  const bool next = !begun_ || round.key.iteration != iteration_;
  if (next) {
    iteration_ = round.key.iteration;
    last_sum_ = std::exchange(sum_, std::vector<std::uint64_t>(sum_.size()));
  }
  if (round.phase == 0) {
    std::ranges::transform(sum_, demand, sum_.begin(), std::plus<>());
  }
  const bool first = !std::exchange(begun_, true);
  if (!driver_) return;
  switch (options_.repatch) {
    case Repatch::layer:
    case Repatch::worthwhile: {
      const bool reuses = options_.first_dispatch == FirstDispatch::reuse;
      if (round.phase == 0 && reuses) return;
      // The ranks wait for the answer, so nothing hides a dark time.
      circuits::Use use{.bytes = tokens, .exchanges = round.phase == 1 && reuses ? 1u : 2u};
      for (std::uint64_t& each : use.bytes) each *= token_bytes;
      return driver_->demand(round.key, demand, now, false, use);
    }
    case Repatch::iteration:
      if (next && !first) driver_->demand({round.key.iteration, kAllLayers, 0, false}, last_sum_, now);
      return;
    case Repatch::once:
      if (next && !first && driver_->patches() == 0) {
        driver_->demand({round.key.iteration, kAllLayers, 0, false}, last_sum_, now);
      }
      return;
    case Repatch::never:
    default:
      return;  // Repatch::never
  }
}

bool RankRegion::may_answer() const {
  if (!driver_) return true;
  const bool waits = asks_by_layer() && !(open_->phase == 0 && options_.first_dispatch == FirstDispatch::reuse);
  return waits ? driver_->ready(open_->key) : driver_->live();
}

void RankRegion::look(Picoseconds now) {
  if (!open_ || answering_ || !may_answer()) return;
  answering_ = true;
  open_->answered = now;
  network_.events().schedule(now + options_.latency, id_, kAnswer);
}

void RankRegion::answer(Picoseconds now) {
  circuits::CircuitMap map{.region = options_.region, .layer = open_->key.layer, .micro_batch = open_->key.micro_batch};
  map.usable_ns = static_cast<std::uint64_t>(open_->answered.count / 1000);
  if (driver_) {
    const circuits::PortMap ports = driver_->ports();
    map.generation = driver_->generation();
    for (std::size_t port = 0; port < ports.peer.size(); ++port) {
      const std::int32_t peer = ports.peer[port];
      if (peer < static_cast<std::int32_t>(port)) continue;
      map.circuits.push_back({static_cast<std::uint16_t>(port / ports.alpha),
                              static_cast<std::uint16_t>(static_cast<std::uint32_t>(peer) / ports.alpha),
                              static_cast<std::uint8_t>(port % ports.alpha),
                              static_cast<std::uint8_t>(static_cast<std::uint32_t>(peer) % ports.alpha),
                              told_.peer.size() == ports.peer.size() && told_.peer[port] == peer});
    }
    told_ = ports;
  }
  const std::vector<std::uint8_t> bytes = map.serialize();
  if (open_->phase != 0) open_->tokens.clear();
  if (rounds_.size() < kMostRounds) {
    rounds_.push_back(std::move(*open_));
  } else {
    ++left_out_;
  }
  open_.reset();
  answering_ = false;
  reported_ = 0;
  // An answered rank may report again at once, so the rows are cleared before the first answer.
  const std::vector<std::optional<Row>> rows = std::exchange(rows_, std::vector<std::optional<Row>>(ranks_.size()));
  for (std::size_t source = 0; source < ranks_.size(); ++source) {
    ranks_[source]->answer(rows[source]->number, bytes, now);
  }
}

}  // namespace loomnet::moe
