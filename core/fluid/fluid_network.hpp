// Links shared by flows without packets: at every moment each flow has its weighted max-min fair rate,
// and what changes is a flow's begin or end, its route, or a link's rate.
//
// Rates are computed again only for the flows that a change can reach: those joined to a changed link by
// a chain of shared links, and of these only flows whose share is not smaller than the change's. A flow with
// share s that ends changes no flow whose share is below s: the tightest link of such a flow was full before
// progressive filling reached s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "clock/event_queue.hpp"

namespace loomnet::fluid {

using LinkIndex = std::uint32_t;

// A flow; its number is given again once it has ended, with another generation.
struct FlowId {
  std::uint32_t slot = 0, generation = 0;
  constexpr bool operator==(const FlowId&) const = default;
};

class FluidNetwork final : public EventHandler {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    // The last byte of the flow has left the last link. Flows may be started, stopped and rerouted in
    // here; they have their rates once all calls of this moment have returned.
    virtual void finished(FlowId flow, std::uint64_t cookie, Picoseconds now) = 0;
  };
  static constexpr std::size_t kMostHops = 255;

  explicit FluidNetwork(EventQueue& events) : events_(events), id_(events.add(*this)) {}

  // `rate`: of payload; 0: flows on the link stand still.
  LinkIndex add_link(BitsPerSecond rate);
  void set_rate(LinkIndex link, BitsPerSecond rate);
  BitsPerSecond rate(LinkIndex link) const { return links_.at(link).rate; }

  // A flow begins now. `route`: the links that it takes part in, each once, 1 to kMostHops; `bytes` above 0;
  // `weight` above 0: its share of a full link is in proportion to it. Throws std::invalid_argument.
  FlowId start(std::span<const LinkIndex> route, std::uint64_t bytes, std::uint32_t weight, Sink& sink,
               std::uint64_t cookie);
  // The flow's remaining bytes take these links from now on.
  void reroute(FlowId flow, std::span<const LinkIndex> route);
  // The flow has this weight from now on, above 0; until this moment's calls have returned its rate is 0.
  void set_weight(FlowId flow, std::uint32_t weight);
  // Ends the flow without a call of its sink.
  void stop(FlowId flow);

  bool open(FlowId flow) const {
    return flow.slot < flows_.size() && flows_[flow.slot].generation == flow.generation && flows_[flow.slot].open;
  }
  // Bytes that have not left yet.
  double left(FlowId flow) const;
  // Bits per second, 0 for a flow that stands still. Of a flow begun in this event: 0.
  double rate(FlowId flow) const { return at(flow).rate(); }
  std::size_t flows() const { return open_; }

  struct Work {
    std::uint64_t solved = 0;   // parts whose rates were computed
    std::uint64_t visited = 0;  // flows that were given one
  };
  const Work& work() const { return work_; }

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  static constexpr std::uint64_t kSettle = ~0ull;
  struct Hop {
    LinkIndex link;
    std::uint32_t place;  // in the link's members
  };
  struct Member {
    std::uint32_t flow, hop;
  };
  struct Link {
    BitsPerSecond rate;
    std::uint32_t mark = 0;  // the round in which it was last met
    bool dirty = false;
    std::uint64_t weight = 0;  // of its members
    // While rates are computed: its place in the part, the weight of flows that have no rate yet, and
    // the bits per second that these may have.
    std::uint32_t part = 0;
    std::uint64_t open = 0;
    double left = 0;
    std::vector<Member> members;
  };
  struct Flow {
    double rest = 0;   // bits left at `since`
    double share = 0;  // bits per second from then on for a unit of weight
    Picoseconds since{}, end = kNever;
    Picoseconds announced = kNever;  // an event is scheduled for then, which is no later than `end`
    std::uint32_t first_hop = 0, weight = 1;
    std::uint32_t generation = 0, mark = 0;
    std::uint8_t hops = 0;
    bool open = false;
    bool fixed = false;  // while rates are computed: has its own
    bool fresh = false;  // of this route: has never had a rate
    Sink* sink = nullptr;
    std::uint64_t cookie = 0;
    double rate() const { return share * weight; }
  };
  struct Share {
    double rate;
    std::uint32_t part;
  };

  const Flow& at(FlowId flow) const;
  std::span<Hop> hops(const Flow& flow) { return {&hops_[flow.first_hop], flow.hops}; }
  void check(std::span<const LinkIndex> route) const;
  void attach(std::uint32_t slot, std::span<const LinkIndex> route);
  void detach(std::uint32_t slot);
  void remove(std::uint32_t slot);
  void soil(LinkIndex link, double share);
  void settle(Picoseconds now);
  void gather(LinkIndex from);
  void fill(Picoseconds now);
  std::size_t fix(LinkIndex tight, Picoseconds now);
  void give(std::uint32_t slot, double share, Picoseconds now);
  void announce(std::uint32_t slot);

  EventQueue& events_;
  ObjectId id_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_flows_;
  std::vector<Hop> hops_;
  std::vector<std::vector<std::uint32_t>> free_hops_;  // first hops, by how many there are
  std::vector<LinkIndex> dirty_;
  double least_ = 0;  // flows that have a smaller share than this are not touched by what made links dirty
  std::size_t open_ = 0;
  std::uint32_t round_ = 0;
  std::vector<LinkIndex> same_route_;  // scratch of set_weight()
  // Scratch of settle(): the part at hand.
  std::vector<LinkIndex> part_links_;
  std::vector<std::uint32_t> part_flows_;
  std::vector<double> shares_;  // by place in the part: rate left for a unit of weight, HUGE_VAL: for none
  std::vector<Share> heap_;
  Work work_;
};

}  // namespace loomnet::fluid
