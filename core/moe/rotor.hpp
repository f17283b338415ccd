// Circuits that rotate whatever the demand (RotorNet, SIGCOMM 2017): in each turn optical NIC k of every server is
// joined to the same NIC of its partner in one of servers - 1 matchings, so that every two servers are joined once in
// servers - 1 turns. A pair's bytes wait for the turns that join the pair; a turn sends what its circuits can carry.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/network.hpp"
#include "moe/exchange.hpp"

namespace loomnet::moe {

struct RotorOptions {
  std::uint32_t servers = 0, alpha = 0;
  panel::Port first_port = 0;     // of the region at its panel
  Picoseconds slot{};             // length of a turn without its guard, which is the panel's dark time
  std::uint64_t slot_bytes = 0;   // bytes that a turn sends by a circuit
};

// Matchings that together join every two of `servers` once. Entry [matching][server] is the partner; of an odd number
// of servers one is left over in each matching, and is its own partner.
std::vector<std::vector<std::uint32_t>> round_robin(std::uint32_t servers);

class Rotor final : public EventHandler {
 public:
  // `nics` as RegionDriver takes them. Network and exchange must outlive this object. Throws std::invalid_argument.
  Rotor(Network& network, Exchange& exchange, NodeId panel, const RotorOptions& options, std::vector<NicPort> nics);

  // An exchange has begun. Between two exchanges nothing is patched; the number of the next turn follows from the
  // time, as if the rotation had gone on. The first turn of an exchange begins with its guard, when all that the
  // exchange before has sent is acknowledged.
  void begin(Picoseconds now);
  void end() { state_ = State::idle; }
  void drained(Picoseconds now);

  std::uint64_t turns() const { return turns_; }      // turns that have been patched
  Picoseconds stretched() const { return stretched_; }  // by which turns were longer than their slots

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
