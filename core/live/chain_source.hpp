// A constant stream of packets through a chain of XDP switches, to measure what a machine carries. The chain has one
// or more lanes: lane n enters every switch by port 2n and leaves it by port 2n + 1.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/network.hpp"
#include "switch/forward/forward_batch.hpp"

namespace loomnet {

// The tables of every switch of such a chain.
ForwardBatch chain_tables(int lanes);

// Sends a packet of these payload bytes out of a host's port 0 once per gap, from start() on.
class ChainSource final : public EventHandler {
 public:
  // `hops`: switches of the chain, at most four. `payload` must outlive the source.
  ChainSource(Network& network, NodeId host, int lane, int hops, std::span<const std::uint8_t> payload);
  void set_gap(Picoseconds gap) { gap_ = gap; }
  void start(Picoseconds at) { network_.events().schedule(at, id_); }
  void on_event(std::uint64_t, Picoseconds now) override;

 private:
  static constexpr std::size_t kHeader = 14 + 40 + 16;  // Ethernet, IPv6, room for a transport's header

  Network& network_;
  NodeId host_;
  std::span<const std::uint8_t> payload_;
  Picoseconds gap_ = seconds(1);
  ObjectId id_;
  std::array<std::uint8_t, kHeader> header_{};
};

}  // namespace loomnet
