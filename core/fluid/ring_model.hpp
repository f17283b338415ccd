// One ring all-reduce as fluid: each rank sends 2(N - 1) steps, each step as a flow over the rank's own NIC
// link and one of the uplinks that all ranks share. Nothing else is there: no delays, no packets.
//
// The model asks what a ring gains when the links serve its rearmost flows first, which is the most that a
// switch can do for the ring by slowing those ahead (Symphony, arXiv 2604.16880, slows them by marks). The
// publication states no such model; this one is our own.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/random.hpp"
#include "fluid/fluid_network.hpp"

namespace loomnet::fluid {

// Times are in steps: the time in which a NIC link carries one step alone. An uplink has the rate of a NIC link.
struct RingSettings {
  std::uint32_t ranks = 8;    // 2 to 4,096
  std::uint32_t uplinks = 8;  // 1 to 4,096
  // Rank i takes the uplinks of leaf i mod `leaves`, which has its part of them; a divisor of `uplinks`.
  std::uint32_t leaves = 1;
  bool rehash = true;         // each step has a random uplink of its own; else each rank has one for all steps
  double jitter = 0;          // mean of the exponential pause of a rank before each of its steps
  // Each uplink is whole and in a burst in turns, both for exponential times; 0: there are no bursts.
  double burst_share = 0;      // of the time, 0 up to 1 excluded
  double burst_capacity = 0.2; // of an uplink during a burst, above 0, at most 1
  double burst_mean = 2;       // how long a burst lasts
  // A flow is ahead if its rank has completed at least so many steps more than the rearmost rank among
  // those that send; 0: no flow is ever called ahead.
  std::uint32_t gap = 0;
  std::uint32_t weight = 1u << 20;  // of the other flows, to 1 of a flow that is ahead
  bool switch_wide = false;         // the rearmost of all ranks that send, not of those on the same uplink
  std::uint64_t seed = 1;           // of paths, jitter and bursts; these do not depend on gap, weight and scope
};

struct RingResult {
  double steps = 0;     // time at which the last rank has sent its last step
  double gap = 0;       // steps completed by the foremost rank less those by the rearmost, mean over time
  double throttled = 0; // share of the time of all flows that they were called ahead
};

class RingModel final : private EventHandler, private FluidNetwork::Sink {
 public:
  // Throws std::invalid_argument naming the setting that is out of range.
  explicit RingModel(const RingSettings& settings);
  RingResult run();

 private:
  struct Rank {
    std::uint32_t sent = 0;  // steps completed
    bool waiting = true;     // it neither pauses nor sends
    bool ahead = false;
    std::uint32_t uplink = 0;
    FlowId flow;
    Picoseconds since{};     // its flow began, or was last called ahead or not
  };
  struct Uplink {
    std::vector<std::uint32_t> senders;
    RandomStream random;
    bool burst = false;
  };
  void on_event(std::uint64_t what, Picoseconds now) override;
  void finished(FlowId flow, std::uint64_t rank, Picoseconds now) override;
  void look(std::uint32_t rank);
  void send(std::uint32_t rank);
  void toggle(std::uint32_t uplink, bool burst);
  void compare(std::uint32_t uplink);
  void compare(std::uint32_t uplink, std::uint32_t rearmost);
  void call_ahead(Rank& rank, bool ahead);
  // Adds the time since rank.since to busy_ and, of a flow that is ahead, to ahead_.
  void account(Rank& rank, Picoseconds now);
  std::uint32_t least(const Uplink& uplink) const;

  RingSettings settings_;
  std::uint32_t steps_;
  EventQueue events_;
  FluidNetwork links_;  // link i: the NIC's of rank i, then the uplinks
  ObjectId id_;
  std::vector<Rank> ranks_;
  std::vector<Uplink> uplinks_;
  std::uint32_t ended_ = 0;
  double gaps_ = 0;  // sum over the time up to since_, in steps times picoseconds
  Picoseconds since_{};
  double busy_ = 0, ahead_ = 0;  // picoseconds of all flows, and those in which they were called ahead
};

}  // namespace loomnet::fluid
