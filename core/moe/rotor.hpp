// Circuits that rotate whatever the demand (RotorNet, SIGCOMM 2017): in each turn optical NIC k of every server is
// joined to the same NIC of its partner in one of servers - 1 matchings, so that in as many turns every two servers
// have met. A pair's bytes wait for the turns of the pair; a turn takes what its circuits carry in it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/network.hpp"
#include "moe/exchange.hpp"

namespace loomnet::moe {

struct RotorOptions {
  std::uint32_t servers = 0, alpha = 0;
  panel::Port first_port = 0;     // of the region at its panel
  Picoseconds slot{};             // a turn with light; the panel's dark time is the guard between two
  std::uint64_t slot_bytes = 0;   // that a circuit carries in a turn
};

// Matchings that join every two of `servers` once: by matching and server the partner, or the server itself where it
// is left over (an odd number of them).
std::vector<std::vector<std::uint32_t>> round_robin(std::uint32_t servers);

class Rotor final : public EventHandler {
 public:
  // `nics`: as RegionDriver has them. All of them outlive it. Throws std::invalid_argument.
  Rotor(Network& network, Exchange& exchange, NodeId panel, const RotorOptions& options, std::vector<NicPort> nics);

  // An exchange has begun. Between two exchanges the rotation goes on without being played: the turn is that of the
  // time. The first turn of an exchange begins with its guard, once what the exchange before sent is acknowledged.
  void begin(Picoseconds now);
  void end() { state_ = State::idle; }
  void drained(Picoseconds now);

  std::uint64_t turns() const { return turns_; }      // that were played
  Picoseconds stretched() const { return stretched_; }  // turns' ends waited for what was under way

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  enum class State : std::uint8_t { idle, dark, slot, drain };

  void turn(Picoseconds now);
  bool works(std::size_t nic) const;
  void after(Picoseconds wait, Picoseconds now) { network_.events().schedule(now + wait, id_, ++timer_); }

  Network& network_;
  Exchange& exchange_;
  NodeId panel_;
  RotorOptions options_;
  std::vector<NicPort> nics_;
  ObjectId id_;
  std::vector<std::vector<std::uint32_t>> matchings_;
  std::vector<circuits::ServerPair> all_;
  State state_ = State::idle;
  std::uint64_t turn_ = 0, turns_ = 0, timer_ = 0;
  Picoseconds over_{}, stretched_{};
  circuits::PortMap ports_;
};

}  // namespace loomnet::moe
