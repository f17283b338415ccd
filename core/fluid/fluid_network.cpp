// Flows of a fluid network: begin, end, routes. Rates are in max_min.cpp.
#include "fluid/fluid_network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace loomnet::fluid {

LinkIndex FluidNetwork::add_link(BitsPerSecond rate) {
  links_.emplace_back();
  links_.back().rate = rate;
  return static_cast<LinkIndex>(links_.size() - 1);
}

void FluidNetwork::set_rate(LinkIndex link, BitsPerSecond rate) {
  Link& found = links_.at(link);
  if (found.rate == rate) return;
  const auto less = static_cast<double>(std::min(found.rate.count, rate.count));
  found.rate = rate;
  if (!found.members.empty()) soil(link, less / static_cast<double>(found.weight));
}

void FluidNetwork::check(std::span<const LinkIndex> route) const {
  if (route.empty() || route.size() > kMostHops) {
    throw std::invalid_argument("fluid: a route has 1 to " + std::to_string(kMostHops) + " links, not " +
                                std::to_string(route.size()));
  }
  for (std::size_t i = 0; i < route.size(); ++i) {
    if (route[i] >= links_.size()) {
      throw std::invalid_argument("fluid: no link " + std::to_string(route[i]));
    }
    if (std::find(route.begin(), route.begin() + static_cast<std::ptrdiff_t>(i), route[i]) !=
        route.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw std::invalid_argument("fluid: link " + std::to_string(route[i]) + " is twice on a route");
    }
  }
}

const FluidNetwork::Flow& FluidNetwork::at(FlowId flow) const {
  if (!open(flow)) throw std::invalid_argument("fluid: the flow has ended");
  return flows_[flow.slot];
}

FlowId FluidNetwork::start(std::span<const LinkIndex> route, std::uint64_t bytes, std::uint32_t weight, Sink& sink,
                           std::uint64_t cookie) {
  check(route);
  if (bytes == 0) throw std::invalid_argument("fluid: a flow has at least one byte");
  if (weight == 0) throw std::invalid_argument("fluid: a flow's weight is above 0");
  std::uint32_t slot;
  if (free_flows_.empty()) {
    slot = static_cast<std::uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    slot = free_flows_.back();
    free_flows_.pop_back();
  }
  Flow& flow = flows_[slot];
  flow.rest = 8.0 * static_cast<double>(bytes);
  flow.share = 0;
  flow.since = events_.now();
  flow.end = flow.announced = kNever;
  flow.weight = weight;
  flow.open = true;
  flow.sink = &sink;
  flow.cookie = cookie;
  ++open_;
  attach(slot, route);
  return {slot, flow.generation};
}

void FluidNetwork::attach(std::uint32_t slot, std::span<const LinkIndex> route) {
  Flow& flow = flows_[slot];
  flow.hops = static_cast<std::uint8_t>(route.size());
  flow.fresh = true;
  double least = HUGE_VAL;
  if (free_hops_.size() <= route.size()) free_hops_.resize(route.size() + 1);
  std::vector<std::uint32_t>& spare = free_hops_[route.size()];
  if (spare.empty()) {
    flow.first_hop = static_cast<std::uint32_t>(hops_.size());
    hops_.resize(hops_.size() + route.size());
  } else {
    flow.first_hop = spare.back();
    spare.pop_back();
  }
  for (std::size_t i = 0; i < route.size(); ++i) {
    const auto hop = flow.first_hop + static_cast<std::uint32_t>(i);
    std::vector<Member>& members = links_[route[i]].members;
    hops_[hop] = {route[i], static_cast<std::uint32_t>(members.size())};
    members.push_back({slot, hop});
    Link& link = links_[route[i]];
    link.weight += flow.weight;
    // However the others share the link, the flow has no less than its part of an equal division.
    least = std::min(least, static_cast<double>(link.rate.count) / static_cast<double>(link.weight));
  }
  for (const LinkIndex link : route) soil(link, least);
}

void FluidNetwork::detach(std::uint32_t slot) {
  const Flow& flow = flows_[slot];
  for (const Hop& hop : hops(flow)) {
    std::vector<Member>& members = links_[hop.link].members;
    members[hop.place] = members.back();
    hops_[members[hop.place].hop].place = hop.place;
    members.pop_back();
    links_[hop.link].weight -= flow.weight;
    if (!members.empty() && !flow.fresh) soil(hop.link, flow.share);
  }
  free_hops_[flow.hops].push_back(flow.first_hop);
}

void FluidNetwork::remove(std::uint32_t slot) {
  detach(slot);
  Flow& flow = flows_[slot];
  flow.open = false;
  ++flow.generation;
  free_flows_.push_back(slot);
  --open_;
}

void FluidNetwork::reroute(FlowId flow, std::span<const LinkIndex> route) {
  (void)at(flow);
  check(route);
  detach(flow.slot);
  attach(flow.slot, route);
}

// The flow leaves its links with the old weight and its rate, and joins them with the new one.
void FluidNetwork::set_weight(FlowId id, std::uint32_t weight) {
  (void)at(id);
  if (weight == 0) throw std::invalid_argument("fluid: a flow's weight is above 0");
  Flow& flow = flows_[id.slot];
  if (flow.weight == weight) return;
  const Picoseconds now = events_.now();
  flow.rest = std::max(flow.rest - flow.rate() * (now - flow.since).seconds(), 0.0);
  flow.since = now;
  flow.end = kNever;
  detach(id.slot);
  flow.weight = weight;
  flow.share = 0;
  same_route_.clear();
  for (const Hop& hop : hops(flow)) same_route_.push_back(hop.link);
  attach(id.slot, same_route_);
}

void FluidNetwork::stop(FlowId flow) {
  (void)at(flow);
  remove(flow.slot);
}

double FluidNetwork::left(FlowId flow) const {
  const Flow& found = at(flow);
  return std::max(found.rest - found.rate() * (events_.now() - found.since).seconds(), 0.0) / 8;
}

// Rates are computed after all other events of this moment that are scheduled by now: what ends or
// begins together is one change.
void FluidNetwork::soil(LinkIndex link, double share) {
  if (dirty_.empty()) {
    least_ = share;
    events_.schedule(events_.now(), id_, kSettle);
  }
  least_ = std::min(least_, share);
  if (links_[link].dirty) return;
  links_[link].dirty = true;
  dirty_.push_back(link);
}

void FluidNetwork::announce(std::uint32_t slot) {
  Flow& flow = flows_[slot];
  flow.announced = flow.end;
  if (flow.end == kNever) return;
  events_.schedule(flow.end, id_, std::uint64_t{flow.generation} << 32 | slot);
}

void FluidNetwork::on_event(std::uint64_t what, Picoseconds now) {
  if (what == kSettle) return settle(now);
  const FlowId id{static_cast<std::uint32_t>(what), static_cast<std::uint32_t>(what >> 32)};
  if (!open(id)) return;
  const Flow& flow = flows_[id.slot];
  if (flow.announced > now) return;  // another event is pending
  if (flow.end > now) return announce(id.slot);
  Sink* const sink = flow.sink;
  const std::uint64_t cookie = flow.cookie;
  remove(id.slot);
  sink->finished(id, cookie, now);
}

}  // namespace loomnet::fluid
