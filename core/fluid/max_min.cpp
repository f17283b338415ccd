// Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): the
// link with the least rate left for each unit of weight fixes the rates of its flows, and so on.
#include <algorithm>
#include <cmath>

#include "fluid/fluid_network.hpp"

namespace loomnet::fluid {
namespace {
constexpr double kPicoseconds = 1e12;  // of a second
constexpr double kRounding = 1 - 1e-9;  // shares that are equal but for rounding are
}  // namespace

void FluidNetwork::settle(Picoseconds now) {
  ++round_;
  least_ *= kRounding;
  for (const LinkIndex link : dirty_) {
    links_[link].dirty = false;
    if (links_[link].mark == round_ || links_[link].members.empty()) continue;
    gather(link);
    if (!part_flows_.empty()) fill(now);
  }
  dirty_.clear();
}

// Finds the part that this link belongs to: links, and flows that may get another rate. Those that keep
// theirs take it from what the others may have.
void FluidNetwork::gather(LinkIndex from) {
  part_links_.clear();
  part_flows_.clear();
  shares_.clear();
  part_links_.push_back(from);
  links_[from].mark = round_;
  for (std::size_t i = 0; i < part_links_.size(); ++i) {
    Link& link = links_[part_links_[i]];
    link.part = static_cast<std::uint32_t>(i);
    link.left = static_cast<double>(link.rate.count);
    link.open = link.weight;
    for (const Member& member : link.members) {
      Flow& flow = flows_[member.flow];
      if (flow.share < least_ && !flow.fresh) {
        link.left -= flow.rate();
        link.open -= flow.weight;
        continue;
      }
      if (flow.mark == round_) continue;
      flow.mark = round_;
      flow.fixed = false;
      part_flows_.push_back(member.flow);
      for (const Hop& hop : hops(flow)) {
        if (links_[hop.link].mark == round_) continue;
        links_[hop.link].mark = round_;
        part_links_.push_back(hop.link);
      }
    }
    shares_.push_back(link.open > 0 ? link.left / static_cast<double>(link.open) : HUGE_VAL);
  }
}

// A heap has the least share on top. What a link has left for each unit of weight never falls as flows
// get their rates, so a link's old share is a lower bound of its share.
void FluidNetwork::fill(Picoseconds now) {
  ++work_.solved;
  work_.visited += part_flows_.size();
  const auto later = [](const Share& a, const Share& b) {
    return a.rate > b.rate || (a.rate == b.rate && a.part > b.part);
  };
  heap_.clear();
  for (std::uint32_t part = 0; part < shares_.size(); ++part) {
    if (shares_[part] < HUGE_VAL) heap_.push_back({shares_[part], part});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  for (std::size_t without = part_flows_.size(); without > 0;) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Share least = heap_.back();
    heap_.pop_back();
    if (shares_[least.part] > least.rate) {
      if (shares_[least.part] == HUGE_VAL) continue;
      heap_.push_back({shares_[least.part], least.part});
      std::push_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    without -= fix(part_links_[least.part], now);
  }
}

// The link's flows that wait for their rate get its share; how many there were.
std::size_t FluidNetwork::fix(LinkIndex tight, Picoseconds now) {
  const double share = std::max(shares_[links_[tight].part], 0.0);
  std::size_t fixed = 0;
  for (const Member& member : links_[tight].members) {
    Flow& flow = flows_[member.flow];
    if (flow.mark != round_ || flow.fixed) continue;
    flow.fixed = true;
    ++fixed;
    const double rate = share * flow.weight;
    for (const Hop& hop : hops(flow)) {
      Link& link = links_[hop.link];
      link.left -= rate;
      link.open -= flow.weight;
      shares_[link.part] = link.open > 0 ? link.left / static_cast<double>(link.open) : HUGE_VAL;
    }
    give(member.flow, share, now);
  }
  return fixed;
}

void FluidNetwork::give(std::uint32_t slot, double share, Picoseconds now) {
  Flow& flow = flows_[slot];
  flow.fresh = false;
  if (share == flow.share) return;
  flow.rest = std::max(flow.rest - flow.rate() * (now - flow.since).seconds(), 0.0);
  flow.since = now;
  flow.share = share;
  const double needed = share > 0 ? std::ceil(flow.rest / flow.rate() * kPicoseconds) : HUGE_VAL;
  flow.end = needed < static_cast<double>(kNever.count - now.count)
                 ? now + Picoseconds{static_cast<std::int64_t>(needed)}
                 : kNever;
  if (flow.end < flow.announced) announce(slot);
}

}  // namespace loomnet::fluid
