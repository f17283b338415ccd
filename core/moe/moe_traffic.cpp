#include "moe/moe_traffic.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet::moe {

MoeTraffic::MoeTraffic(Network& network, MoeConfig config)
    : network_(network),
      config_(std::move(config)),
      id_(network.events().add(*this)),
      transfers_(network, {config_.job, config_.message, config_.depth}) {
  const Shape& shape = config_.shape;
  shape.check();
  config_.gates.check();
  if (config_.gates.experts != shape.experts) {
    throw std::invalid_argument("moe: gate counts of " + std::to_string(config_.gates.experts) + " experts for " +
                                std::to_string(shape.experts));
  }
  if (config_.iterations == 0) throw std::invalid_argument("moe: iterations must be 1 or more");
  if (config_.stop <= config_.start) throw std::invalid_argument("moe: stop must be after start");
  if (config_.work.attention.count < 0 || config_.work.experts.count < 0) {
    throw std::invalid_argument("moe: compute times must not be negative");
  }
  network.forbid_lookahead();  // regions act on one another without a packet in between
  config_.exchange.servers = shape.servers();
  config_.exchange.gpus = shape.gpus;
  for (std::uint32_t region = 0; region < shape.regions(); ++region) {
    ExchangeOptions exchange = config_.exchange;
    exchange.seed = network.seed() + region;
    regions_.push_back(std::make_unique<RegionWork>(network, transfers_, config_.shape, config_.gates, region,
                                                    config_.work, exchange, static_cast<Pipeline&>(*this)));
    Servers servers;
    servers.ahead.resize(shape.servers());
    servers.behind.resize(shape.servers());
    servers.rings.resize(shape.servers());
    servers_.push_back(std::move(servers));
  }
}

MoeTraffic::~MoeTraffic() = default;

void MoeTraffic::set_stage_ways(std::uint32_t region, std::uint32_t server, bool backward, std::vector<Way> ways) {
  for (const Way& way : ways) transfers_.own(way);
  (backward ? servers_.at(region).behind : servers_.at(region).ahead).at(server) = std::move(ways);
}

void MoeTraffic::set_ring_ways(std::uint32_t region, std::uint32_t server, std::vector<Way> ways) {
  for (const Way& way : ways) transfers_.own(way);
  servers_.at(region).rings.at(server) = std::move(ways);
}

void MoeTraffic::start() { network_.events().schedule(config_.start, id_, 0); }

void MoeTraffic::on_event(std::uint64_t, Picoseconds now) { begin(now); }

void MoeTraffic::begin(Picoseconds now) {
  const Shape& shape = config_.shape;
  began_ = now;
  waiting_.assign(shape.stages, shape.replicas);
  exposed_.assign(shape.stages, {});
  stages_open_ = shape.stages;
  for (Servers& each : servers_) {
    each.forward.assign(shape.micro_batches, config_.activations * shape.servers());
    each.backward = each.forward;
    each.forward_exposed.assign(shape.micro_batches, {});
    each.backward_exposed = each.forward_exposed;
  }
  const auto iteration = static_cast<std::uint32_t>(iterations_.size());
  for (auto& region : regions_) region->begin(iteration, now);
}

void MoeTraffic::forward_done(std::uint32_t region, std::uint32_t micro_batch, Picoseconds now) {
  if (config_.shape.stage(region) + 1 < config_.shape.stages) hand_on(region, micro_batch, false, now);
}

void MoeTraffic::backward_done(std::uint32_t region, std::uint32_t micro_batch, Picoseconds now) {
  if (config_.shape.stage(region) > 0) hand_on(region, micro_batch, true, now);
}

void MoeTraffic::hand_on(std::uint32_t region, std::uint32_t micro_batch, bool backward, Picoseconds now) {
  const std::uint32_t to = backward ? region - 1 : region + 1;
  const Picoseconds exposed = regions_[region]->exposed();
  if (config_.activations == 0) return regions_[to]->input(micro_batch, backward, exposed, now);
  (backward ? servers_[to].backward_exposed : servers_[to].forward_exposed)[micro_batch] = exposed;
  const auto& ways = backward ? servers_[region].behind : servers_[region].ahead;
  const std::uint64_t what = cookie(backward ? Kind::backward : Kind::forward, to, micro_batch);
  for (const std::vector<Way>& parallel : ways) send(parallel, config_.activations, what, now);
}

void MoeTraffic::send(const std::vector<Way>& parallel, std::uint64_t bytes, std::uint64_t cookie, Picoseconds now) {
  for (std::size_t way = 0; way < parallel.size(); ++way) {
    const std::uint64_t part = bytes / parallel.size() + (way < bytes % parallel.size());
    if (part > 0) transfers_.start(parallel[way], part, *this, cookie, now);
  }
}

void MoeTraffic::all_done(std::uint32_t region, Picoseconds now) {
  const std::uint32_t stage = config_.shape.stage(region);
  if (--waiting_[stage] > 0) return;
  exposed_[stage] = regions_[region]->exposed();
  sum(stage, now);
}

// A ring's reduce-scatter and all-gather: in each of the two, a member sends the next one all parts but one. The steps
// of the publication's rings follow each other without a gap, so they are one transfer here.
void MoeTraffic::sum(std::uint32_t stage, Picoseconds now) {
  const Shape& shape = config_.shape;
  --stages_open_;
  const std::uint64_t each = config_.gradients * 2 * (shape.replicas - 1) / shape.replicas;
  for (std::uint32_t replica = 0; replica < shape.replicas && each > 0; ++replica) {
    const std::uint32_t region = shape.region(replica, stage);
    for (const std::vector<Way>& ways : servers_[region].rings) {
      ring_bytes_ += each;
      send(ways, each, cookie(Kind::ring, region, 0), now);
    }
  }
  summed(stage, now);
}

void MoeTraffic::summed(std::uint32_t stage, Picoseconds now) {
  if (ring_bytes_ == 0 && stages_open_ == 0) end(stage, now);
}

void MoeTraffic::arrived(std::uint64_t cookie, std::uint64_t bytes, Picoseconds now) {
  const auto region = static_cast<std::uint32_t>(cookie & 0xffffffff);
  const auto micro_batch = static_cast<std::uint32_t>(cookie >> 32 & 0xffffff);
  if (static_cast<Kind>(cookie >> 56) == Kind::ring) {
    ring_bytes_ -= bytes;
    return summed(config_.shape.stage(region), now);
  }
  const bool backward = static_cast<Kind>(cookie >> 56) == Kind::backward;
  Servers& servers = servers_[region];
  std::uint64_t& left = (backward ? servers.backward : servers.forward)[micro_batch];
  left -= bytes;
  if (left > 0) return;
  regions_[region]->input(micro_batch, backward,
                          (backward ? servers.backward_exposed : servers.forward_exposed)[micro_batch], now);
}

void MoeTraffic::end(std::uint32_t stage, Picoseconds now) {
  Iteration found{began_, now, {}, {}};
  found.exposed = exposed_[stage];
  const auto count = static_cast<std::int64_t>(regions_.size());
  for (auto& region : regions_) {
    const WorkTimes& times = region->times();
    for (const auto part : {&WorkTimes::waiting, &WorkTimes::exchanging, &WorkTimes::computing}) {
      found.mean.*part += times.*part;
      found.most.*part = std::max(found.most.*part, times.*part);
    }
    found.optical += region->exchange().optical_bytes();
    found.electrical += region->exchange().electrical_bytes();
  }
  for (const auto part : {&WorkTimes::waiting, &WorkTimes::exchanging, &WorkTimes::computing}) {
    found.mean.*part = found.mean.*part / count;
  }
  for (const Iteration& before : iterations_) {
    found.optical -= before.optical;
    found.electrical -= before.electrical;
  }
  iterations_.push_back(found);
  network_.iteration_ended(config_.job);
  if (iterations_.size() == config_.iterations || now >= config_.stop) {
    done_ = true;
    ended_ = now;
    return network_.job_ended(config_.job);
  }
  network_.events().schedule(now, id_, 0);
}

void MoeTraffic::region_failed(std::uint32_t region, std::uint32_t server, Status status, Picoseconds now) {
  if (done_) return;
  failures_.push_back({region, server, now, std::string(to_string(status))});
  done_ = true;
  ended_ = now;
  network_.job_ended(config_.job);
}

void MoeTraffic::failed(std::uint64_t cookie, Status status, Picoseconds now) {
  region_failed(static_cast<std::uint32_t>(cookie & 0xffffffff), 0, status, now);
}

}  // namespace loomnet::moe
