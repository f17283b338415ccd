// Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): the
// link with the least rate left for each unit of weight fixes the rates of its flows, and so on.
#include <algorithm>
#include <cmath>

#include "fluid/fluid_network.hpp"

namespace loomnet::fluid {
namespace {
constexpr double kPicoseconds = 1e12;  // of a second
}

// Where the event of an earlier moment's flow is under way, `settling_` holds, so that nothing that the
// sinks do schedules another one.
void FluidNetwork::settle(Picoseconds now) {
  settling_ = true;
  // Which links are dirty grows while flows end in here.
  while (!dirty_.empty()) {
    ++round_;
    std::size_t next = 0;
    bool again = false;
    for (; next < dirty_.size(); ++next) {
      const LinkIndex link = dirty_[next];
      if (links_[link].mark == round_ || links_[link].members.empty()) continue;
      if (!gather(link, now)) {
        again = true;
        break;
      }
      fill(now);
    }
    // The parts before `next` have their rates. Links that flows left since then are among the rest.
    for (std::size_t i = 0; i < next; ++i) links_[dirty_[i]].dirty = false;
    dirty_.erase(dirty_.begin(), dirty_.begin() + static_cast<std::ptrdiff_t>(next));
    if (!again) continue;
    for (const FlowId flow : ended_) {  // the sink of one may stop or reroute another
      if (open(flow) && flows_[flow.slot].end <= now) finish(flow, now);
    }
  }
  settling_ = false;
}

// Finds the part that this link belongs to. False where flows of it end now: they are in `ended_`.
bool FluidNetwork::gather(LinkIndex from, Picoseconds now) {
  part_links_.clear();
  part_flows_.clear();
  ended_.clear();
  part_links_.push_back(from);
  links_[from].mark = round_;
  for (std::size_t i = 0; i < part_links_.size(); ++i) {
    Link& link = links_[part_links_[i]];
    link.left = static_cast<double>(link.rate.count);
    link.waiting = static_cast<std::uint32_t>(link.members.size());
    link.weight = 0;
    for (const Member& member : link.members) {
      Flow& flow = flows_[member.flow];
      link.weight += flow.weight;
      if (flow.mark == round_) continue;
      flow.mark = round_;
      flow.fixed = false;
      part_flows_.push_back(member.flow);
      if (flow.end <= now) ended_.push_back({member.flow, flow.generation});
      for (const Hop& hop : hops(flow)) {
        if (links_[hop.link].mark == round_) continue;
        links_[hop.link].mark = round_;
        part_links_.push_back(hop.link);
      }
    }
  }
  return ended_.empty();
}

void FluidNetwork::fill(Picoseconds now) {
  ++work_.solved;
  work_.visited += part_flows_.size();
  // A heap with the least share on top. What a link has left for each unit of weight never falls as
  // flows get their rates, so a link's old share is a lower bound of its share.
  const auto later = [](const Share& a, const Share& b) {
    return a.rate > b.rate || (a.rate == b.rate && a.link > b.link);
  };
  shares_.clear();
  for (const LinkIndex link : part_links_) {
    shares_.push_back({links_[link].left / static_cast<double>(links_[link].weight), link});
  }
  std::make_heap(shares_.begin(), shares_.end(), later);
  std::size_t without = part_flows_.size();
  while (without > 0) {
    std::pop_heap(shares_.begin(), shares_.end(), later);
    const Share least = shares_.back();
    Link& link = links_[least.link];
    if (link.waiting == 0) {
      shares_.pop_back();
      continue;
    }
    const double share = std::max(link.left, 0.0) / static_cast<double>(link.weight);
    if (share > least.rate) {
      shares_.back().rate = share;
      std::push_heap(shares_.begin(), shares_.end(), later);
      continue;
    }
    shares_.pop_back();
    for (const Member& member : link.members) {
      Flow& flow = flows_[member.flow];
      if (flow.fixed) continue;
      flow.fixed = true;
      --without;
      const double rate = share * flow.weight;
      for (const Hop& hop : hops(flow)) {
        Link& other = links_[hop.link];
        other.left -= rate;
        other.weight -= flow.weight;
        --other.waiting;
      }
      give(member.flow, rate, now);
    }
  }
  const Flow* first = nullptr;
  std::uint32_t slot = 0;
  for (const std::uint32_t each : part_flows_) {
    const Flow& flow = flows_[each];
    if (first && (flow.end > first->end || (flow.end == first->end && each > slot))) continue;
    first = &flow;
    slot = each;
  }
  if (first->end == kNever || first->announced == first->end) return;
  flows_[slot].announced = first->end;
  events_.schedule(first->end, id_, std::uint64_t{first->generation} << 32 | slot);
}

void FluidNetwork::give(std::uint32_t slot, double rate, Picoseconds now) {
  Flow& flow = flows_[slot];
  if (rate == flow.rate) return;
  flow.rest = std::max(flow.rest - flow.rate * (now - flow.since).seconds(), 0.0);
  flow.since = now;
  flow.rate = rate;
  const double needed = rate > 0 ? std::ceil(flow.rest / rate * kPicoseconds) : HUGE_VAL;
  flow.end = needed < static_cast<double>(kNever.count - now.count)
                 ? now + Picoseconds{static_cast<std::int64_t>(needed)}
                 : kNever;
}

}  // namespace loomnet::fluid
