// State that a sending port's queue shares with the wire behind the queue: counters, the half-link's
// random stream, the recorder that hears of its packets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "clock/random.hpp"
#include "link/queue_losses.hpp"
#include "packet/ecn.hpp"
#include "packet/packet.hpp"
#include "packet/tap.hpp"

namespace loomnet {

// Why the wire drops a packet, behind the queue or without carrier.
enum class WireDrop : std::uint8_t { link_down, loss, fcs, count };
inline constexpr std::size_t kWireDrops = static_cast<std::size_t>(WireDrop::count);
inline constexpr std::array<std::string_view, kWireDrops> kWireDropNames{"link_down", "loss", "fcs"};

// Why a queue drops one: the index of a name in PortQueue::drop_names().
using QueueDrop = std::uint8_t;
inline constexpr std::size_t kMostQueueDrops = 4;

struct LinkCounters {
  std::uint64_t packets = 0;       // delivered to the far end
  std::uint64_t bytes = 0;         // their frames without FCS
  std::uint64_t trimmed = 0;
  std::uint64_t marked = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t max_queue = 0;     // bytes of data queued, highest seen
  std::uint64_t pauses = 0;        // times that PFC stopped this direction's data …
  std::uint64_t pause_expiries = 0;  // … and that such a pause ran out instead of being ended
  Picoseconds paused{};            // how long altogether, up to now
  std::array<std::uint64_t, kWireDrops> wire_drops{};
  std::array<std::uint64_t, kMostQueueDrops> queue_drops{};
  std::span<const std::string_view> queue_drop_names;  // of the port's discipline

  // Calls see(name, packets) for every reason that this port can drop for.
  template <class See>
  void each_drop(See&& see) const {
    for (std::size_t i = 0; i < queue_drop_names.size(); ++i) see(queue_drop_names[i], queue_drops[i]);
    for (std::size_t i = 0; i < kWireDrops; ++i) see(kWireDropNames[i], wire_drops[i]);
  }
  // Whether anything has been counted.
  bool used() const {
    std::uint64_t found = packets | bytes | trimmed | marked | duplicated | max_queue | pauses | pause_expiries;
    found |= static_cast<std::uint64_t>(paused.count);
    for (const std::uint64_t n : wire_drops) found |= n;
    for (const std::uint64_t n : queue_drops) found |= n;
    return found != 0;
  }
  // Packets dropped for the reason of this name; 0 where the port has none such.
  std::uint64_t drops(std::string_view reason) const {
    std::uint64_t found = 0;
    each_drop([&](std::string_view name, std::uint64_t n) { found += name == reason ? n : 0; });
    return found;
  }
  std::uint64_t dropped() const {
    std::uint64_t sum = 0;
    each_drop([&](std::string_view, std::uint64_t n) { sum += n; });
    return sum;
  }
};

struct SendingPort {
  LinkCounters counters;
  RandomStream random;
  Tap* tap = nullptr;
  QueueLosses* losses = nullptr;  // null: nobody asks
  std::uint32_t number = 0;  // of the half-link, as the tap knows it
  std::uint8_t ecn_before_mark = 0;  // of the packet that mark() was last called for; 0: it had CE already

  // Sets CE by the rule of the port's own discipline, in the packet that leaves the queue now.
  void mark(Packet& packet) {
    ecn_before_mark = is_ce(packet) ? 0 : ecn_bits(packet);
    mark_ce(packet);
    ++counters.marked;
  }
  void drop(QueueDrop reason, const Packet& packet, Picoseconds now) {
    ++counters.queue_drops[reason];
    if (losses) losses->add(packet);
    if (tap) [[unlikely]] {
      tap->dropped(number, packet, counters.queue_drop_names[reason], false, now);
    }
  }
  // `was_sent`: the packet is lost behind the serialiser.
  void drop(WireDrop reason, const Packet& packet, Picoseconds now, bool was_sent = false) {
    const auto i = static_cast<std::size_t>(reason);
    ++counters.wire_drops[i];
    if (tap) [[unlikely]]
      tap->dropped(number, packet, kWireDropNames[i], was_sent, now);
  }
};

}  // namespace loomnet
